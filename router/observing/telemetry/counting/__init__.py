"""What the gateway counts."""
