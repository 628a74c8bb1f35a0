"""Changes to branches and tags, including rollbacks. The ledgers are checked first."""
