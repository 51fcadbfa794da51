"""The model repository: an extension of the protocol."""
