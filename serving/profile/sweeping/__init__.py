"""Which batch a sweep measures next, and whether the machine is quiet enough."""
