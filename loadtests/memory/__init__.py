"""What the cache and models on demand cost, and what they bring."""
