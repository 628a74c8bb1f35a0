"""From a Java Iceberg sink to this one: what its configuration means here, and where it stood."""
