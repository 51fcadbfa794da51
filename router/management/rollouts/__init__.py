"""Guarded rollouts of a running gateway: what carries them out, their routes, and their command."""
