"""Records what a real Slurm does with a workload: who was submitted when, started when, and where."""
