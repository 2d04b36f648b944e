"""Configuration of the daemon: keys, files, default directories and reference."""
