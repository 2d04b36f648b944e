"""The process around the loop: signals, one instance, word to systemd, logs, housekeeping."""
