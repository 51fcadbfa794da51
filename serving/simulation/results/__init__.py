"""What became of the requests of a run."""
