"""Everything on one machine, for a user who sees the product for the first time.

A broker, a worker, a small shop whose changes arrive as Debezium events, the Iceberg sink that is
posted in front of the user's eyes, and a live view of the tables. At the end the tables are
compared with what the shop did.
"""
