"""Distributed training tasks: the simulated pool, orderings, placers and the learned agents."""
