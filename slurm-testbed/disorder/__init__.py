"""Chains under combined and repeated failures, on a real Slurm."""
