"""What a running gateway shows of itself: metrics, and the status document."""
