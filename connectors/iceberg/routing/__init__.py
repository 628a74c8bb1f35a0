"""Routing of rows to tables."""
