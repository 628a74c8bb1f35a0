"""Conversion of rows to the types of a table, and changes of tables for new rows."""
