"""The quickstart: the whole product on one machine, for new users.

It starts a broker, a worker, and a generator that writes the changes of a small shop as Debezium
events; posts the Iceberg sink; and shows a live view of the tables. At the end, the tables are
compared with the shop's data.
"""
