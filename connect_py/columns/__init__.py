"""Batch columns: Arrow types and conversions, structs, and joined byte strings."""
