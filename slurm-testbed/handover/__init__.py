"""Handover of a gateway from one link of a chain to the next, under load."""
