"""The simulator against a real slurmctld: recordings of ``slurm-testbed/fidelity``, played and compared."""
