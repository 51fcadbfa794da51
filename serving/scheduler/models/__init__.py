"""Models, as the scheduler sees them: their queues, counts and variants."""
