"""From PostgreSQL to Iceberg on one machine: a real database, real Debezium on Java's Connect, our
worker and sink.

A user changes rows by hand in psql and sees them arrive. A tour does so by itself, with a change of
schema, a kill and an audit. At the end every table of PostgreSQL is compared with its Iceberg
table.
"""
