"""What a guarded rollout would need and break, step by step, before it starts."""
