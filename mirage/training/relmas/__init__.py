"""How the agents that answer requests are trained. Needs torch."""
