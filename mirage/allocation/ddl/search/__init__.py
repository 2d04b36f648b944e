"""Orders that are searched for: whole plans tried on a coarse pool, the best of them followed."""
