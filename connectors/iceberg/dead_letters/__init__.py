"""Conversion of dead-letter records to table rows."""
