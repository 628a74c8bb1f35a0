-- What Debezium watches: run once, when Postgres makes its folder.
CREATE TABLE customers (
  id bigint PRIMARY KEY,
  name text NOT NULL,
  city text
);
CREATE TABLE orders (
  id bigint PRIMARY KEY,
  customer bigint NOT NULL REFERENCES customers,
  total numeric(10, 2) NOT NULL,
  placed timestamp NOT NULL DEFAULT now()
);
-- Deletes and updates carry the whole row before the change.
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO customers VALUES (1, 'Ada', 'London'), (2, 'Grace', 'New York');
INSERT INTO orders (id, customer, total) VALUES (100, 1, 12.50), (101, 2, 7.25);
