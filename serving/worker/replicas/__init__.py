"""Replicas in a worker: how one runs a batch, and what its answers must be."""
