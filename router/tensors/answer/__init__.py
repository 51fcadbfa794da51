"""What an answer carries."""
