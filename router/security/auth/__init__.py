"""API keys: which caller a request is from, and what it may do (docs/auth.md)."""
