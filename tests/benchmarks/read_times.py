"""Times full reads of tables by Spark, each beside a copy that is written anew, in a process of its own.

python tests/benchmarks/read_times.py LAKE TABLE...

Prints a JSON object: table -> seconds of each read, taken in turn: of the table, of its copy, and of the state with the
most data files among the snapshots that are there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from peer_spark_stream import session

READS = 9  # of each; the first two warm up and are left out
WARM_UP = 2


def main() -> None:
    """Copy, then read table and copy in turn."""
    spark = session(Path(sys.argv[1]))
    found = {}
    for name in sys.argv[2:]:
        table, copy = f"lake.{name}", f"lake.{name}_copy"
        spark.sql(
            f"CREATE TABLE {copy} USING iceberg TBLPROPERTIES ('format-version'='3',"
            f" 'write.parquet.compression-codec'='zstd') AS SELECT /*+ COALESCE(1) */ * FROM {table}"
        )
        (most,) = spark.sql(
            f"SELECT max_by(snapshot_id, int(summary['total-data-files'])) FROM {table}.snapshots"
        ).collect()
        worst = f"{table} VERSION AS OF {most[0]}"
        times: dict[str, list[float]] = {table: [], copy: [], worst: []}
        columns = ", ".join(spark.table(table).columns)
        for _ in range(READS):
            for each, seconds in times.items():
                started = time.monotonic()
                spark.sql(f"SELECT count(*), sum(hash({columns})) FROM {each}").collect()
                seconds.append(time.monotonic() - started)
        found[name] = {"table": times[table][WARM_UP:], "copy": times[copy][WARM_UP:], "worst": times[worst][WARM_UP:]}
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
