"""The web page: server templates over the same addresses that all other users asks."""
