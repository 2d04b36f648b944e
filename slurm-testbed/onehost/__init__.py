"""A real Slurm cluster on one host: munge, MariaDB, Slurm's daemons and many slurmd, without systemd."""
