"""Mirage: proactive provisioning for Slurm."""

__version__ = "0.2.0"
