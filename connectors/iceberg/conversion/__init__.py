"""Conversion of rows to the column types of a table, and schema evolution for new fields."""
