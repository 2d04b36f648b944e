"""Training of the DAS agents. Needs torch."""
