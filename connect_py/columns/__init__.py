"""Columns of a batch: Arrow types and conversions, structs, and joined byte strings."""
