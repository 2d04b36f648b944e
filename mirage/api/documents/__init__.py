"""Request and response documents, one module per resource."""
