"""Pipeline files: connectors in YAML, and plans that compare them with a worker."""
