"""What the sink tells others while it works: lineage of commits, and notices of what a person may
want to know."""
