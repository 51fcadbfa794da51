"""The one clock, timers, and the time of cores."""
