"""Metric families as Prometheus text, by subject."""
