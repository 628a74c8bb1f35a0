"""Configuration of the Iceberg sink, parsed into immutable objects."""
