"""Times full reads of tables with Spark, each compared with a rewritten copy, in a separate
process.

python tests/benchmarks/read_times.py LAKE TABLE...

Prints a JSON object: table -> alternating read times in seconds of the table, of its copy, and of
the state with the most data files among the existing snapshots. `moments` contains twelve of these
snapshots, evenly spaced, with the ratio of their read time to the copy's.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peer_spark_stream import session

READS = 9  # of each; the first two warm up and are left out
WARM_UP = 2
MOMENTS, READS_OF_A_MOMENT = 12, 5


def main() -> None:
    """Copy, then read table and copy in turn."""
    spark = session(Path(sys.argv[1]))
    found = {}
    for name in sys.argv[2:]:
        table, copy = f"lake.{name}", f"lake.{name}_copy"
        spark.sql(
            f"CREATE TABLE {copy} USING iceberg TBLPROPERTIES ('format-version'='3',"
            f" 'write.parquet.compression-codec'='zstd') AS SELECT /*+ COALESCE(1) */ * FROM "
            f"{table}"
        )
        kept = spark.sql(
            f"SELECT snapshot_id, int(summary['total-data-files']) FROM {table}.snapshots ORDER BY "
            f"committed_at"
        ).collect()
        worst = f"{table} VERSION AS OF {max(kept, key=lambda each: each[1])[0]}"
        times = in_turn(spark, table, [table, copy, worst], READS)
        moments = []
        for number in range(min(MOMENTS, len(kept))):
            then = (
                f"{table} VERSION AS OF "
                f"{kept[number * len(kept) // MOMENTS if len(kept) > MOMENTS else number][0]}"
            )
            of_moment = in_turn(spark, table, [then, copy], READS_OF_A_MOMENT)
            moments.append(statistics.median(of_moment[then]) / statistics.median(of_moment[copy]))
        found[name] = {
            "table": times[table],
            "copy": times[copy],
            "worst": times[worst],
            "moments": moments,
        }
    print(json.dumps(found))
    spark.stop()


def in_turn(spark: Any, table: str, relations: Sequence[str], reads: int) -> dict[str, list[float]]:
    """Return seconds of full reads, without warm-up reads."""
    times: dict[str, list[float]] = {each: [] for each in relations}
    columns = ", ".join(spark.table(table).columns)
    for _ in range(reads):
        for each, seconds in times.items():
            started = time.monotonic()
            spark.sql(f"SELECT count(*), sum(hash({columns})) FROM {each}").collect()
            seconds.append(time.monotonic() - started)
    return {each: seconds[WARM_UP:] for each, seconds in times.items()}


if __name__ == "__main__":
    main()
