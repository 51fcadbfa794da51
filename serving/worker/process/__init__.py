"""The worker as a process: its memory, its output, its threads, and how it ends."""
