"""Digests that show that a rename or a move of code changed no decision and no answer."""
