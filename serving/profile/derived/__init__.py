"""What decisions derive from profiles."""
