"""Keys of the Iceberg sink, parsed to frozen values."""
