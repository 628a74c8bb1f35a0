"""`connect-py rebuild --from-topics --publish` is killed, and runs while a worker writes to the
table.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from exactly_once_events import (
    SHORT_TIMEOUTS,
    ChangeFeed,
    check_appends,
    check_upserts,
    connector_config,
    expected_appends,
    expected_upserts,
)
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from loaded_topics import MODES
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connectors.iceberg.table.table_history import REBUILD_KEY

pytestmark = [pytest.mark.long, pytest.mark.soak]
RATE, KEYS, SECONDS = 150.0, 3_000, 600.0
COMMAND = Path(sys.executable).with_name("connect-py")


@pytest.mark.timeout(3 * SECONDS)
def test_tables_rebuilt_while_their_connectors_stream_are_exact(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    servers, topic, lake = (
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}orders",
        Lakehouse(tmp_path / "lake"),
    )
    names = {mode: f"{topic_prefix}{mode}" for mode in MODES}
    configs = {
        mode: connector_config(topic, "json", mode, f"db.{mode}s", "", lake.sink_config())
        | {"iceberg.control.commit.interval-ms": "3000"}
        for mode in MODES
    }
    feed = ChangeFeed(servers, [topic], "json", KEYS, RATE)
    worker = WorkerProcess(tmp_path / "worker", servers, f"{topic_prefix}worker", SHORT_TIMEOUTS)
    try:
        worker.start()
        for mode in MODES:
            worker.put(names[mode], configs[mode])
        time.sleep(20)
        for mode in MODES:
            config = tmp_path / f"{mode}.json"
            config.write_text(json.dumps({"name": names[mode], "config": configs[mode]}))
            command = [
                str(COMMAND),
                "rebuild",
                f"db.{mode}s",
                "--config",
                str(config),
                "--from-topics",
                "--publish",
                "--bootstrap-server",
                servers,
                "--step-rows",
                "2000",
                "--json",
            ]
            for seconds in (12.0, 25.0):  # killed while it loads, or at any time
                with subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                ) as killed:
                    time.sleep(seconds)
                    killed.send_signal(signal.SIGKILL)
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=SECONDS
            )
            assert done.returncode == 0, done.stderr[-4000:]
            found = json.loads(done.stdout)
            print(
                mode,
                {key: found[key] for key in ("published", "records", "resumed")},
                found["difference"]["counts"],
            )
            assert set(found["difference"]["counts"].values()) == {0}
        time.sleep(10)
        produced = feed.finish(SECONDS)
        for mode in MODES:
            worker.wait_until(
                lambda mode=mode: caught_up(servers, names[mode], topic),
                SECONDS,
                f"{mode} to catch up",
            )
        check_appends(lake.rows("db.appends"), expected_appends(produced, KEYS))
        check_upserts(lake.rows("db.upserts"), expected_upserts(produced, KEYS))
        for mode in MODES:
            config = tmp_path / f"{mode}.json"
            audit = [str(COMMAND), "audit", f"db.{mode}s", "--config", str(config)]
            done = subprocess.run(
                audit, capture_output=True, text=True, check=False, timeout=SECONDS
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert rebuilds(lake, f"db.{mode}s") == 2  # where it began, and where it was published
    finally:
        feed.close()
        worker.close()


def rebuilds(lake: Lakehouse, name: str) -> int:
    """Snapshots of a rebuild in the history of main."""
    table = lake.table(name)
    assert table is not None
    found, at = 0, table.current_snapshot()
    while at is not None:
        found += at.summary is not None and REBUILD_KEY in at.summary.additional_properties
        at = (
            table.snapshot_by_id(at.parent_snapshot_id)
            if at.parent_snapshot_id is not None
            else None
        )
    return found
