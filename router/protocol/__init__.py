"""What REST, gRPC and the applications' endpoints share of a request: its model, its promise, its outcome."""
