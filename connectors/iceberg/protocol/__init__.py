"""The exactly-once protocol of the Iceberg sink: plain data in, decisions out."""
