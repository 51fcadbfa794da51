"""The worker's loops: one on a CPU, one on a GPU, and the loads beside them."""
