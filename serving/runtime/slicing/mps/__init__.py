"""Shares of a GPU by CUDA MPS."""
