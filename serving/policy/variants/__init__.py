"""Which variant answers, and what several variants' answers come to."""
