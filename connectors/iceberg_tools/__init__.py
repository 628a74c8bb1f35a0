"""Tools for the Iceberg sink's tables: commands, operations, maintenance, and events.

They are registered as entry points and depend on `connectors.iceberg`, never the other way around.
The connector runs without this package.
"""
