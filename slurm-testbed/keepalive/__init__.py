"""A scenario for a running testbed: services of two users, each longer than the time limit, under load."""
