"""Which variant answers, and what learning it costs."""
