"""`connect-py try`: the effect of a topic's records, without writing anything."""
