"""Several gateways: which of them serves which model."""
