"""Table descriptions, table requests, and schema changes as plain values."""
