"""The addresses, one module a resource."""
