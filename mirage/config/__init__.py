"""What the daemon is told: files and environment in, one checked value out."""
