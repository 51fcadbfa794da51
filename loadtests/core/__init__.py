"""What the scheduler, control and workers cost."""
