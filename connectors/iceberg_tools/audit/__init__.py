"""Audit of a table from its own history; see `table_audit`."""
