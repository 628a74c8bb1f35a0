"""Tools for the tables of the Iceberg sink: commands, operations, maintenance, events.

They are registered as entry points and depend on `connectors.iceberg`, never the other way around.
The connector runs without this package.
"""
