"""Looks at Slurm and at this machine, and says what follows for chains."""
