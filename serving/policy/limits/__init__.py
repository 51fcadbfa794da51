"""How much clients may ask for and hold."""
