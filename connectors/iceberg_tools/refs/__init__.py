"""Changes of branches and tags, including rollbacks, that are checked against the ledgers first."""
