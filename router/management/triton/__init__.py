"""Triton's extensions that tell of the gateway: the model configuration, log settings and trace settings.

What each extension says is in a file of its own, free of any server; `*_edges.py` put them on REST and gRPC.
"""
