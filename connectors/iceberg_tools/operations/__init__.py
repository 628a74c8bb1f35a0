"""Operations of the Iceberg sink over REST.

The path is `POST /connectors/{connector}/operations/{operation}`.
"""
