"""Which promises batching keeps, live and in virtual time."""
