"""Authentication and authorisation of API callers."""
