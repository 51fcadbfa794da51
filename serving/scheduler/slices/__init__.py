"""Slices and their replicas, as the scheduler sees them."""
