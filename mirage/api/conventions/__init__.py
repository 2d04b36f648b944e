"""What all addresses have in common: problems, bodies, pages, tags of versions."""
