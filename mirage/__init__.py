"""Mirage: proactive provisioning for Slurm."""

__version__ = "0.1.0"
