"""The simulated system, compiled."""
