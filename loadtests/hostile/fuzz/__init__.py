"""Inputs that no client, worker, Redis or editor should send, made by the million from a corpus."""
