"""Rollouts from one desired state to another, step by step."""
