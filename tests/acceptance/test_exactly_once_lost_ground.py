"""The coordinator's ground is taken away: Spark's JVM is killed, its table is dropped. Rows stay in
exactly once."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.compute as pc
import pytest
from confluent_kafka import Consumer, TopicPartition
from exactly_once_events import (
    SHORT_TIMEOUTS,
    ChangeFeed,
    check_appends,
    check_upserts,
    connector_config,
    expected_appends,
    expected_upserts,
)
from kafka_offsets import caught_up, ends
from lakehouse import Lakehouse
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

TABLE = "db.orders"
KEYS = 1000
POINT = "before_compare_and_swap"
SECONDS = 90.0  # time until a worker with Spark commits, on two shared cores


class Sink:
    """A worker with one connector on one topic that is fed."""

    def __init__(
        self, folder: Path, broker: KafkaBroker, prefix: str, mode: str, faults: str = ""
    ) -> None:
        self.name, self.topic = f"{prefix}sink", f"{prefix}orders"
        self.servers = broker.bootstrap_servers
        self.lake = Lakehouse(folder / "lake")
        self.points = folder / "points.log"
        environment = {"CONNECT_PY_FAULTS": faults, "CONNECT_PY_FAULTS_LOG": str(self.points)}
        self.worker = WorkerProcess(
            folder, self.servers, f"{prefix}worker", SHORT_TIMEOUTS, environment
        )
        self.feed = ChangeFeed(self.servers, [self.topic], "json", KEYS, rate=200)
        self.config = connector_config(self.topic, "json", mode, TABLE, "", self.lake.sink_config())

    def start(self) -> None:
        self.worker.start()
        self.worker.put(self.name, self.config)

    def wait_for_point(self, point: str, hit: int) -> int:
        """Wait until a fault point was come by; returns the process's id."""
        found: list[int] = []

        def seen() -> bool:
            lines = self.points.read_text().splitlines() if self.points.exists() else []
            found.extend(
                int(line.split()[2]) for line in lines if line.startswith(f"{point} {hit} ")
            )
            return bool(found)

        self.worker.wait_until(seen, SECONDS, f"{point} {hit}")
        return found[0]

    def finish(self) -> int:
        """End the feed and wait for everything; returns the number of events."""
        produced = self.feed.finish(SECONDS)
        self.worker.wait_until(
            lambda: caught_up(self.servers, self.name, self.topic), SECONDS, "the sink to catch up"
        )
        return produced

    def records(self) -> Iterator[tuple[int, int, int]]:
        """Partition, offset and key of every event in the topic; tombstones left out."""
        left = ends(self.servers, self.topic)
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": f"{self.topic}-check",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in left])
        try:
            while left:
                for message in consumer.consume(1000, 5.0):
                    assert message.error() is None
                    place = (message.topic(), message.partition())
                    if message.offset() + 1 >= left.get(place, 0):  # last read -> next to read
                        left.pop(place, None)
                    if message.value() is not None:
                        yield message.partition(), message.offset(), int(message.key()[6:-1])
        finally:
            consumer.close()

    def close(self) -> None:
        self.feed.close()
        self.worker.close()


# a JVM per death and one more, with back-off, on two cores that others share
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("mode", "deaths"),
    [
        pytest.param("upsert", 1, marks=pytest.mark.long),
        pytest.param("append", 3, marks=pytest.mark.long),
    ],
)
def test_driver_killed_during_commits_is_replaced_and_rows_stay_exact(
    mode: str,
    deaths: int,
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    spark_environment: dict[str, str],
) -> None:
    sink = Sink(tmp_path, kafka_broker, topic_prefix, mode, f"{POINT}=delay:1500@2+")
    try:
        sink.start()
        coordinator = psutil.Process(sink.wait_for_point("after_start_commit", 1))
        for hit in range(2, 2 + deaths):
            driver = psutil.Process(sink.wait_for_point(POINT, hit))
            [jvm] = [p for p in driver.children() if "java" in p.name()]
            jvm.send_signal(signal.SIGKILL)
        produced = sink.finish()
        assert coordinator.is_running(), "the task went on all the time"
        if mode == "append":
            check_appends(sink.lake.rows(TABLE), expected_appends(produced, KEYS))
        else:
            check_upserts(sink.lake.rows(TABLE), expected_upserts(produced, KEYS))
        sink.lake.assert_ledgers_chain(TABLE)
    finally:
        sink.close()


@pytest.mark.long  # in every run: test_rows_for_a_missing_table_are_dead_letters_until_created
@pytest.mark.timeout(150)  # a worker with Spark, on two cores that others share
def test_recreated_table_has_every_row_since_the_drop(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    sink = Sink(tmp_path, kafka_broker, topic_prefix, "append")
    try:
        sink.start()
        sink.wait_for_point("after_compare_and_swap", 2)  # cycles without rows are complete as well
        last = sink.lake.ledgers(TABLE)[-1]
        sink.lake.catalog.drop_table(TABLE)
        sink.finish()
        first = sink.lake.ledgers(TABLE)[0]
        assert first["table"] != last["table"]
        bases = {int(p): base for p, (_, base, _) in first["topics"][sink.topic]["p"].items()}
        known = {
            int(p): following for p, (_, _, following) in last["topics"][sink.topic]["p"].items()
        }
        # Commits to the old table between the snapshot and the drop are lost with it.
        assert all(bases[p] >= known[p] for p in bases)
        found = sink.lake.rows(TABLE)
        offsets = pc.struct_field(found["_cdc"], "offset").to_pylist()
        expected = Counter(
            (offset, key) for partition, offset, key in sink.records() if offset >= bases[partition]
        )
        assert Counter(zip(offsets, found["id"].to_pylist(), strict=True)) == expected
        sink.lake.assert_ledgers_chain(TABLE)
    finally:
        sink.close()
