"""Audit of a table based on its snapshot history."""
