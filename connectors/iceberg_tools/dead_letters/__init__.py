"""Tools for dead letters: read their table, and replay their records."""
