"""The gateway, its units and its hand-over."""
