"""Which tables the rows of a batch go to."""
