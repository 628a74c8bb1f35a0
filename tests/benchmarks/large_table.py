"""Creates a large table for `bench_large_table.py`, with Spark in a separate process.

python tests/benchmarks/large_table.py LAKE ROWS FILES
"""

from __future__ import annotations

import sys
from pathlib import Path

from peer_spark_stream import ROW, TABLE, session

_SELECT = """
    SELECT id, CAST(id % 9973 AS INT) AS customer_id, CAST(1 + hash(id) % 49 AS INT) AS quantity,
      CAST(pmod(hash(id, 1), 50000) AS DOUBLE) / 100 AS price, 'NEW' AS status,
      format_string('SKU-%05d', id % 5000) AS sku, concat('alpha bravo carbon ', pmod(hash(id, 2), 1000000)) AS comment,
      concat('user', id % 100000, '@example.org') AS email, 1760000000000000 + id AS created_at,
      1760000000000000 + id AS updated_at
    FROM new_rows"""  # noqa: E501 - a table or a literal is wider


def main() -> None:
    """Create `db.orders` as the sink does for upserts, with rows of the keys 0 to ROWS, in key
    order."""
    lake, rows, files = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    spark = session(lake)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    columns = ROW.replace("id BIGINT", "id BIGINT NOT NULL", 1)
    spark.sql(
        f"CREATE TABLE {TABLE} ({columns}) USING iceberg TBLPROPERTIES ('format-version'='3',"
        " 'write.distribution-mode'='none', 'write.parquet.compression-codec'='zstd')"
    )
    spark.sql(f"ALTER TABLE {TABLE} SET IDENTIFIER FIELDS id")
    spark.range(0, rows, 1, files).createOrReplaceTempView("new_rows")
    spark.sql(f"INSERT INTO {TABLE} {_SELECT}")
    spark.stop()


if __name__ == "__main__":
    main()
