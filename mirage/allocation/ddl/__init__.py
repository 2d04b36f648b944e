"""Distributed training tasks: the simulated pool, ordering policies, placement policies and the learned agents."""
