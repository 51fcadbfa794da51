"""The autoscaler: how many replicas a model has, and on which slices."""
