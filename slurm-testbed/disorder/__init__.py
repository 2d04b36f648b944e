"""Chains under faults that combine and come again, on a real Slurm."""
