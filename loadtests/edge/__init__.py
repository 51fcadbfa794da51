"""What a request costs at the edge, beside peers."""
