"""`connect-py rewind` on a connector with two tables: replay refills them, skip continues without
the rows, and a refused rewind changes nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from exactly_once_events import SHORT_TIMEOUTS
from lakehouse import Lakehouse
from sink_case import SinkCase
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

TABLES = ("db.first", "db.second")


@pytest.mark.long
@pytest.mark.timeout(300)  # a worker, its driver several times, and one for each command
def test_tables_and_positions_go_back_together_then_replay_or_skip(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    lake, servers = Lakehouse(tmp_path / "lake"), kafka_broker.bootstrap_servers
    worker = WorkerProcess(tmp_path, servers, f"{topic_prefix}worker", SHORT_TIMEOUTS)
    case = SinkCase(
        worker, lake, servers, f"{topic_prefix}two", {"iceberg.tables": ",".join(TABLES)}
    )
    posted = tmp_path / "connector.json"
    posted.write_text(json.dumps({"name": case.name, "config": case.config()}))

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        line = [str(Path(sys.executable).parent / "connect-py"), *words, "--config", str(posted)]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)

    def rewind(*words: str) -> subprocess.CompletedProcess[str]:
        return command("rewind", "db.first", "--worker", str(worker.properties), *words)

    def check(first: list[int], second: list[int]) -> None:
        for table, expected in zip(TABLES, (first, second), strict=True):
            found: Counter[Any] = Counter(lake.rows(table)["id"].to_pylist())
            assert found == Counter(expected), table

    try:
        worker.start()
        case.create_topic()
        case.start()
        case.produce_ids(range(10))
        case.await_caught_up()
        heads = {table: lake.table(table) for table in TABLES}
        good = {
            name: table.current_snapshot().snapshot_id
            for name, table in heads.items()
            if table is not None
        }  # type: ignore[union-attr] # it exists
        case.produce_ids(range(10, 20))
        case.await_caught_up()
        running = rewind("--to", str(good["db.first"]), "--skip", "--yes")
        assert running.returncode == 1, running.stdout + running.stderr
        assert "stop it first" in running.stderr
        case.stop()
        shown = rewind("--to", str(good["db.first"]))
        assert shown.returncode == 0, shown.stderr
        assert f"{case.name}-0 again from 10 to 20" in shown.stdout
        assert "other tables of the connector do not change: db.second" in shown.stdout
        check([*range(20)], [*range(20)])
        for _ in range(2):  # again: as after an interruption
            skipped = rewind("--to", str(good["db.first"]), "--skip", "--yes")
            assert skipped.returncode == 0, skipped.stderr
        check([*range(10)], [*range(20)])
        case.resume()
        case.produce_ids(range(20, 30))
        case.await_caught_up()
        check([*range(10), *range(20, 30)], [*range(30)])
        judged = command("audit", "db.first", "--json")
        assert judged.returncode == 0, judged.stdout
        assert "were skipped by a rewind" in judged.stdout
        case.stop()
        replayed = rewind("--to", "first", "--replay", "--yes", "--all-tables", "--json")
        assert replayed.returncode == 0, replayed.stderr
        assert json.loads(replayed.stdout)["heads"].keys() == {*TABLES}
        case.resume()
        case.produce_ids(range(30, 35))
        case.await_caught_up()
        check([*range(35)], [*range(35)])
    finally:
        worker.close()
