"""Proof from a table's own history that every offset range is in once: see `table_audit`."""
