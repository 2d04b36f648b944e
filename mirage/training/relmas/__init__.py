"""How the agents that answer requests are taught. Needs torch."""
