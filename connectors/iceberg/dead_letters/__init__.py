"""Dead letters as rows of a table."""
