"""From PostgreSQL to Iceberg on one machine.

The demo consists of a real database, Debezium on Java's Kafka Connect, and connect-py with its
sink.

Users change rows in psql and watch them arrive. The tour performs these steps automatically, with a
schema change, a killed worker, and an audit. At the end, every table of PostgreSQL is compared with
its Iceberg table.
"""
