"""Shares of a GPU by MIG."""
