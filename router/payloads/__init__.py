"""Large payloads: codecs beside the event loop, and memory that clients share."""
