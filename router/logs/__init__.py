"""What the gateway prints and logs."""
