"""Costs of network segments on kinds of units: tables, their construction, their measurement."""
