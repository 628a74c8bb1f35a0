"""History of a table: snapshots with their writers and offsets, differences, and rebuilds."""
