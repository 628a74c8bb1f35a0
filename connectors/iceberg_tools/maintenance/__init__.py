"""Maintenance of tables by the whole policy: due actions (pure), Iceberg's procedures, schedule."""
