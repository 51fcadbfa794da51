"""What a gateway may use of its machine: slices, devices, memory, workers."""
