"""The web UI: server-side templates over the REST API."""
