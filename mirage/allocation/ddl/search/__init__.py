"""Search for an order: whole plans are tried on a coarse pool, and the best is followed."""
