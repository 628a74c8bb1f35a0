"""Migration from a Java Iceberg sink: its configuration and its positions."""
