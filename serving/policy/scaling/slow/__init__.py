"""The slow plan: how many replicas of which variants, on which kinds of slices."""
