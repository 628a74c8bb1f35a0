"""Subcommands of `connect-py` that the Iceberg sink brings."""
