"""What the agents compute for each task and machine, compiled."""
