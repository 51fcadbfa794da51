"""A model.yaml and what its build measured."""
