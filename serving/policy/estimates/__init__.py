"""What is expected from what was seen: latencies, rates, and how far a profile still holds."""
