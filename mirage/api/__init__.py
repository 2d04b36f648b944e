"""The daemon's REST API and web UI, on a Unix socket and optionally on the network."""
