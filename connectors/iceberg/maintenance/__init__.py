"""Automatic maintenance in the driver of the commits: compaction and snapshot expiration."""
