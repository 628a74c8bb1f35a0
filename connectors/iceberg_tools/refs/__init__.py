"""Branches, tags and roll-backs of tables by command: checked against the ledgers before anything
is changed."""
