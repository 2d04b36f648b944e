"""Other simulators next to ours: the same workload, EASY, waits and speed of each."""
