"""Pipeline files, which declare connectors in YAML, and plans, which compare them with a worker."""
