"""`connect-py try`: shows the effect of a topic's records without writing anything."""
