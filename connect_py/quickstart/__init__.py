"""The quickstart, which runs the entire product on one machine for new users.

It starts a broker, a worker, and a generator that writes a small shop's changes as Debezium events.
Then it creates the Iceberg sink connector and shows a live view of the tables. At the end, the
tables are compared with the shop's data.
"""
