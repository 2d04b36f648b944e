"""The compiled loops of the search; they call no other kernel's."""
