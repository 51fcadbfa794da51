"""Traces of requests: which are traced, and the thread that makes spans and files of them."""
