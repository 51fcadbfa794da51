"""Which requests come, and when."""
