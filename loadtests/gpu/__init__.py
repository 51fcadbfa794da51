"""All that only a GPU can show."""
