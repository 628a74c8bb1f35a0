"""Changes of branches and tags, and rollbacks, checked against the ledgers first."""
