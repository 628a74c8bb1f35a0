"""History of a table's snapshots: their writers, their offsets, differences, and rebuilt states."""
