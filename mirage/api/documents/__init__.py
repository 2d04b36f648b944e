"""What the API takes and answers, one module a resource."""
