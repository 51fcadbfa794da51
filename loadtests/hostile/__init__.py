"""Hostile traffic, and inputs made by the million."""
