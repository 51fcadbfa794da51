"""Greedy packing on devices that are divided by amounts."""
