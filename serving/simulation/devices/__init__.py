"""What batches run on, and what goes wrong there."""
