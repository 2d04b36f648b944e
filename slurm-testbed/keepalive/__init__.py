"""A scenario for a running testbed: services of two users, each longer than the walltime limit, under load."""
