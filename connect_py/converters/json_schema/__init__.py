"""JSON with a schema registry."""
