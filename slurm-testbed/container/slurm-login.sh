# A login shell beside the daemons lives on Slurm's clock, as its jobs do.
eval "$(testbed env --dir /run/mirage-testbed)"
