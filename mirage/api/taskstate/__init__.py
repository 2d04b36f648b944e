"""How tasks within links stand: a file that a chain's owner writes and the daemon reads without trusting it."""
