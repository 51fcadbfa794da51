"""The desired and the observed state, and what lies between them."""
