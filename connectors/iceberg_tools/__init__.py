"""Tools for the tables of the Iceberg sink: commands, operations, maintenance, events.

They are registered by entry points and depend on `connectors.iceberg`, never the other way around:
the connector runs without this package.
"""
