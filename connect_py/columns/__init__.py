"""Columns of batches: Arrow types and conversions, structs, and joined byte strings."""
