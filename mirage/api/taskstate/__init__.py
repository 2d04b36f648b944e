"""Task state within links: a file that a chain's owner writes, and the daemon reads without trusting it."""
