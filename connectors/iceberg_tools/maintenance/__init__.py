"""Full table maintenance: due actions, Iceberg procedures, tiering, and scheduling."""
