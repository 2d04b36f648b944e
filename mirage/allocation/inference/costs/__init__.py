"""What pieces of networks cost on kinds of units: tables, their builders, their measurement."""
