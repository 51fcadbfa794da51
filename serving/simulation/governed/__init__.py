"""The live controller in virtual time, beside the live scheduler."""
