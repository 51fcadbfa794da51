"""What travels between the gateway and a worker: frames, their values, and their tensors."""
