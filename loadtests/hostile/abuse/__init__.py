"""Hostile traffic at a gateway: broken requests, and small ones that are meant to cost much."""
