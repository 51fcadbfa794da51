"""What the load of the past says of a model's replicas."""
