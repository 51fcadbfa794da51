"""The terms of placement: problem, plan, geometry, and the rules that a plan must keep."""
