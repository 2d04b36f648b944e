"""What the interface takes and answers, one module a resource."""
