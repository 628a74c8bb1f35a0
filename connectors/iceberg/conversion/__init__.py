"""Conversion of rows to the columns and types of a table, and changes of a table for its rows."""
