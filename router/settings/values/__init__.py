"""A settings file as values, and the shape that its keys have."""
