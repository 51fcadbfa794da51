"""gRPC: its two servers, and the choice between them."""
