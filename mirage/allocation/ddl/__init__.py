"""Distributed training tasks: simulated pool, ordering and placement policies, trained agents."""
