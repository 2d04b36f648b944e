"""Read published task traces, pools and measured speeds into tables."""
