"""Routes and documents of the API, by resource."""
