"""Requests from their acceptance to their batch."""
