"""Conventions of all endpoints: errors, bodies, paging, ETags."""
