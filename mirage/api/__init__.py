"""The daemon's local interface: HTTP on a Unix socket, whose callers the kernel names."""
