"""The values that all parts of the core share: specs, tensors, objectives, slices."""
