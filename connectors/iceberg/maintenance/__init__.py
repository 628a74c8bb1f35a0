"""Automatic compaction and snapshot expiration in the Spark driver that runs the commits."""
