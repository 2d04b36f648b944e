"""The web page: server templates over the same addresses that everybody else asks."""
