"""Training of the agents for requests. Needs torch."""
