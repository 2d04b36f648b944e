"""Record how a real Slurm runs a workload: submissions, starts and nodes."""
