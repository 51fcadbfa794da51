"""Calls on their way through the gateway: limits, selection, batches, replies."""
