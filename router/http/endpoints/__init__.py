"""Applications' endpoints over HTTP: each asks the same core as the Open Inference Protocol does.

`router/protocol/dialects` reads and writes what they say.
"""
