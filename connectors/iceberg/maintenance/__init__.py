"""Maintenance of tables by policy: what is due (pure), how it is done (Spark SQL), and when
(between cycles)."""
