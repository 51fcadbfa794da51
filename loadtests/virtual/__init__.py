"""Worlds in virtual time, and the baselines that play in them."""
