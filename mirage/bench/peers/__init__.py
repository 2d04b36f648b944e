"""Other simulators beside ours: the same workload, EASY, waits and speed of each."""
