"""What a request says besides its data, and what it must be."""
