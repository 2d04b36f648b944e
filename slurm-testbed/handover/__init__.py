"""One link of a chain hands its gateway over to the next, under load."""
