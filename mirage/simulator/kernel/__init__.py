"""The compiled controller: pure functions on arrays."""
