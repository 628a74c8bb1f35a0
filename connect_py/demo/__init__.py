"""Demonstration that lands a PostgreSQL database in Iceberg on one machine.

It consists of a PostgreSQL server, Debezium on Java's Kafka Connect, and connect-py with its
Iceberg sink. Users change rows in psql and watch the changes arrive. The tour performs these steps
automatically, and includes a schema change, a killed worker, and an audit. At the end, every
PostgreSQL table is compared with its Iceberg table.
"""
