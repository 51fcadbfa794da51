"""Slices on other machines: a gateway's door for nodes, and the agent that runs on each node."""
