"""The files of the protocols that the gRPC edge speaks, and their messages."""
