"""Offsets of the Iceberg sink changed over REST: a rewind replays, a skip skips, a crash in the
midst is repaired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from exactly_once_events import (
    SHORT_TIMEOUTS,
    check_upserts,
    connector_config,
    expected_upserts,
    load,
)
from kafka_offsets import caught_up, committed, ends
from lakehouse import Lakehouse
from sink_case import SinkCase
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

# time until a task with its JVM commits, on two shared cores
SECONDS = 90.0
FAULTS = "CONNECT_PY_FAULTS"
ALTERED = "The offsets for this connector have been altered successfully"
RESET = "The offsets for this connector have been reset successfully"
TABLES = ("db.first", "db.second")


class Offsets:
    """The offsets of one connector, over REST."""

    def __init__(self, worker: WorkerProcess, name: str) -> None:
        self._url = f"{worker.url}/connectors/{name}/offsets"

    def listed(self) -> dict[int, int]:
        entries = httpx.get(self._url, timeout=100).json()["offsets"]
        return {e["partition"]["kafka_partition"]: e["offset"]["kafka_offset"] for e in entries}

    def patch(self, topic: str, offsets: dict[int, int | None]) -> tuple[int, str]:
        body = [
            {
                "partition": {"kafka_topic": topic, "kafka_partition": partition},
                "offset": None if offset is None else {"kafka_offset": offset},
            }
            for partition, offset in offsets.items()
        ]
        return self._told(httpx.patch(self._url, json={"offsets": body}, timeout=100))

    def delete(self) -> tuple[int, str]:
        return self._told(httpx.delete(self._url, timeout=100))

    def _told(self, response: httpx.Response) -> tuple[int, str]:
        return response.status_code, response.json()["message"]


def last_entries(lake: Lakehouse, table: str, topic: str) -> dict[int, list[int]]:
    """Generation, base and next offset of each partition, as the newest ledger has them."""
    newest = lake.ledgers(table)[-1]["topics"][topic]["p"]
    return {int(partition): entry for partition, entry in newest.items()}


class TwoTables:
    """An appending sink whose one topic goes to two tables."""

    def __init__(self, folder: Path, broker: KafkaBroker, name: str) -> None:
        self.lake = Lakehouse(folder / "lake")
        self.worker = WorkerProcess(
            folder, broker.bootstrap_servers, f"{name}-worker", SHORT_TIMEOUTS
        )
        self.case = SinkCase(
            self.worker,
            self.lake,
            broker.bootstrap_servers,
            name,
            {"iceberg.tables": ",".join(TABLES)},
        ).create_topic()
        self.offsets = Offsets(self.worker, name)

    def catch_up(self) -> None:
        servers, name = self.case.bootstrap_servers, self.case.name
        self.worker.wait_until(
            lambda: caught_up(servers, name, name), SECONDS, "everything committed"
        )

    def check(self, *ids: Iterable[int]) -> None:
        """Check that both tables contain these rows as often as they are listed."""
        expected = Counter(number for part in ids for number in part)
        for table in TABLES:
            found: Counter[Any] = Counter(self.lake.rows(table)["id"].to_pylist())
            assert found == expected, (
                f"{table}: {found - expected} too many, {expected - found} too few"
            )

    def generations(self) -> list[int]:
        return [last_entries(self.lake, table, self.case.name)[0][0] for table in TABLES]

    def resume_and_die_at(self, point: str) -> None:
        """Kill the worker, restart it, and kill it again at a point while the tables follow."""
        self.worker.kill_group()
        self.worker.environment[FAULTS] = f"{point}=killgroup@1"
        self.worker.start()
        self.case.resume()
        self.worker.wait_for_death(SECONDS)
        self.worker.environment.pop(FAULTS)
        self.worker.start()

    def close(self) -> None:
        self.worker.close()


def rewind_and_die_at(points: Iterable[str], folder: Path, broker: KafkaBroker, name: str) -> None:
    """Load, then for each point: stop, rewind, crash there while the tables follow, and recover."""
    sink = TwoTables(folder, broker, name)
    try:
        sink.worker.start()
        sink.case.produce_ids(range(100))
        sink.case.start()
        sink.catch_up()
        rows = [range(100)]
        for start, point in enumerate(points, start=40):
            sink.case.stop()
            assert sink.offsets.patch(name, {0: start}) == (200, ALTERED)
            assert sink.offsets.listed() == {0: start}
            sink.resume_and_die_at(point)
            sink.catch_up()
            rows.append(range(start, 100))
            sink.check(*rows)
            assert sink.generations() == [len(rows) - 1] * 2
    finally:
        sink.close()


@pytest.mark.long
@pytest.mark.timeout(300)  # five runs of a task with its JVM, on two shared cores
def test_appended_rows_follow_every_offset_change_despite_a_crash(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    name = f"{topic_prefix}facts"
    sink = TwoTables(tmp_path, kafka_broker, name)
    try:
        sink.worker.start()
        sink.case.produce_ids(range(100))
        # kills between the commits of two tables
        sink.case.start(iceberg__control__commit__threads="1")
        sink.catch_up()
        sink.check(range(100))

        sink.case.stop()
        assert sink.offsets.patch(name, {0: 101}) == (
            500,
            f"offset 101 is not in the log of partition 0 of topic {name}, which has offsets 0 to "
            f"100",
        )
        assert sink.offsets.patch(name, {0: 40}) == (200, ALTERED)
        assert sink.offsets.listed() == {0: 40}
        sink.resume_and_die_at("after_compare_and_swap")
        assert sorted(sink.generations()) == [0, 1], "one table has followed, the other has not"
        sink.catch_up()
        sink.check(range(100), range(40, 100))

        sink.case.stop()
        sink.case.produce_ids(range(100, 120))
        assert sink.offsets.patch(name, {0: 110}) == (200, ALTERED)
        sink.case.resume()
        sink.catch_up()
        sink.check(range(100), range(40, 100), range(110, 120))

        sink.case.stop()
        assert sink.offsets.delete() == (200, RESET)
        # the tables' ledgers must contain it; therefore the group is not deleted
        assert sink.offsets.listed() == {0: 0}
        sink.case.resume()
        sink.catch_up()
        sink.check(range(100), range(40, 100), range(110, 120), range(120))
        assert sink.generations() == [3, 3]
    finally:
        sink.close()


@pytest.mark.long
@pytest.mark.timeout(400)  # two runs of a task with its JVM, on two shared cores
def test_upsert_table_is_the_same_after_an_offset_rewind(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    name, topic, table, events, keys = (
        f"{topic_prefix}sink",
        f"{topic_prefix}orders",
        "db.orders",
        3000,
        500,
    )
    servers = kafka_broker.bootstrap_servers
    load(servers, topic, "json", events, keys, SECONDS)
    lake = Lakehouse(tmp_path / "lake")
    worker = WorkerProcess(tmp_path, servers, f"{topic_prefix}worker", SHORT_TIMEOUTS)
    offsets = Offsets(worker, name)

    def catch_up() -> None:
        worker.wait_until(lambda: caught_up(servers, name, topic), SECONDS, "everything committed")

    try:
        worker.start()
        worker.put(name, connector_config(topic, "json", "upsert", table, "", lake.sink_config()))
        catch_up()
        expected = expected_upserts(events, keys)
        check_upserts(lake.rows(table), expected)
        assert httpx.put(f"{worker.url}/connectors/{name}/stop", timeout=100).status_code == 204
        worker.wait_for_states(name, "STOPPED")
        ended = {partition: end for (_, partition), end in ends(servers, topic).items()}
        assert offsets.listed() == ended
        halves = {partition: end // 2 for partition, end in ended.items() if partition != 1}
        assert offsets.patch(topic, {**halves, 1: None}) == (200, ALTERED)
        assert offsets.listed() == {**halves, 1: 0}
        snapshots = len(lake.ledgers(table))
        assert httpx.put(f"{worker.url}/connectors/{name}/resume", timeout=100).status_code == 202
        catch_up()
        check_upserts(lake.rows(table), expected)
        assert len(lake.ledgers(table)) > snapshots
        first = lake.ledgers(table)[snapshots]["topics"][topic]["p"]
        assert {int(p): (g, base) for p, (g, base, _) in first.items()} == {
            p: (1, start) for p, start in {**halves, 1: 0}.items()
        }
        assert {p: entry[::2] for p, entry in last_entries(lake, table, topic).items()} == {
            p: [1, end] for p, end in ended.items()
        }
        assert committed(servers, f"connect-{name}", topic) == ends(servers, topic)
    finally:
        worker.close()


@pytest.mark.long
@pytest.mark.timeout(900)  # two runs of a task with its JVM per point
def test_worker_death_after_a_rewind_loses_or_doubles_nothing(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    points = (
        "after_start_commit",
        "after_close_files",
        "after_accept",
        "before_prepare",
        "before_compare_and_swap",
        "after_compare_and_swap",
        "after_commit_complete",
        "before_group_commit",
    )
    rewind_and_die_at(points, tmp_path, kafka_broker, f"{topic_prefix}facts")
