"""Task traces, pools and measured speeds, as others publish them, read into tables."""
