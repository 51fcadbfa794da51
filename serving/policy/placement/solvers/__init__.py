"""Solvers by linear and integer programs."""
