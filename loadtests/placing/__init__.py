"""Placement: solvers compared, plans placed and rehearsed."""
