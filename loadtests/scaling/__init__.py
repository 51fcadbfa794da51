"""How many replicas, by which policy."""
