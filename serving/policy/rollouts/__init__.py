"""Guarded rollouts: whether a candidate is worse than what serves, judged at any time, on the same load."""
