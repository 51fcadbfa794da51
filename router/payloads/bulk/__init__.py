"""What takes over a millisecond to read or write, done beside the event loop.

A request's JSON and typed contents become binary tensors in a process of their own (Python parses under one
lock), an answer's JSON is written there, and compression runs in a thread (zlib takes no lock).
"""
