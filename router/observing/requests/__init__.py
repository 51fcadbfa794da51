"""Single requests of the last minutes: what was decided on each, and why."""
