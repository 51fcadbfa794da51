"""How many rows n replicas carry in time."""
