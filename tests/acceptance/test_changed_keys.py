"""Changed primary keys in a topic of three partitions: each row keeps the values that the source
omits.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from lakehouse import Lakehouse
from sink_case import SinkCase
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

# a worker, a Spark driver, and cycles that wait for each other
pytestmark = pytest.mark.timeout(300)

PARTITIONS = 3
UNAVAILABLE = "__debezium_unavailable_value"
CONFIG = {
    "key__converter": "org.apache.kafka.connect.json.JsonConverter",
    "key__converter__schemas__enable": "false",
    "iceberg__tables__upsert_mode_enabled": "true",
    "iceberg__tables__default_id_columns": "id",
    "iceberg__ext__envelope": "debezium",
}


class Shop:
    """A table of a database whose log Debezium writes to a topic, a key's events to one
    partition."""

    def __init__(self, case: SinkCase, seed: int) -> None:
        self._case = case
        self._random = random.Random(seed)
        self._position = 0
        self.rows: dict[int, dict[str, Any]] = {}

    def live(self, steps: int) -> None:
        """Write, change, delete rows and change their keys, so many times."""
        producer = Producer({"bootstrap.servers": self._case.bootstrap_servers})
        self._send = producer
        for _ in range(steps):
            self._position += 1
            id_, other = self._random.sample(range(12), 2)
            match self._random.choice(["write", "write", "touch", "move", "move", "delete"]):
                case "write":
                    self._upsert(
                        {"id": id_, "n": self._position, "blob": f"blob {self._position}"},
                        sent=True,
                    )
                case "touch" if id_ in self.rows:
                    self._upsert({**self.rows[id_], "n": self._position}, sent=False)
                case "move" if id_ in self.rows and other not in self.rows:
                    row = self.rows.pop(id_)
                    self._delete(id_, {"__debezium.newkey": {"id": other}})
                    self._upsert(
                        {**row, "id": other}, sent=False, headers={"__debezium.oldkey": {"id": id_}}
                    )
                case "delete" if id_ in self.rows:
                    del self.rows[id_]
                    self._delete(id_, {})
        assert producer.flush(30) == 0

    def _upsert(
        self, row: dict[str, Any], *, sent: bool, headers: Mapping[str, Any] | None = None
    ) -> None:
        self.rows[row["id"]] = row
        after = row if sent else {**row, "blob": UNAVAILABLE}
        self._emit(row["id"], {"op": "u", "before": None, "after": after}, headers or {})

    def _delete(self, id_: int, headers: Mapping[str, Any]) -> None:
        before = {"id": id_, "n": None, "blob": None}
        self._emit(id_, {"op": "d", "before": before, "after": None}, headers)
        self._emit(id_, None, headers)

    def _emit(self, id_: int, event: dict[str, Any] | None, headers: Mapping[str, Any]) -> None:
        value = None if event is None else json.dumps({**event, "source": {"lsn": self._position}})
        texts = [(name, json.dumps(key).encode()) for name, key in headers.items()]
        self._send.produce(
            self._case.name,
            value,
            json.dumps({"id": id_}),
            partition=id_ % PARTITIONS,
            headers=texts,
        )

    def assert_landed(self) -> None:
        self._case.await_caught_up()
        found = self._case.lakehouse.rows(self._case.table).to_pylist()
        assert len({row["id"] for row in found}) == len(found), "a key has several rows"
        assert {row["id"]: row for row in found} == self.rows


@pytest.fixture
def worker(
    kafka_broker: KafkaBroker, spark_environment: Mapping[str, str], tmp_path: Path
) -> Iterator[WorkerProcess]:
    process = WorkerProcess(
        tmp_path / "worker",
        kafka_broker.bootstrap_servers,
        tmp_path.name,
        environment=spark_environment,
    )
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture
def case(worker: WorkerProcess, kafka_broker: KafkaBroker, tmp_path: Path) -> SinkCase:
    lakehouse = Lakehouse(tmp_path / "lake")
    lakehouse.catalog.create_namespace("db")
    return SinkCase(
        worker, lakehouse, kafka_broker.bootstrap_servers, tmp_path.name.replace("_", "-")
    )


@pytest.mark.long
@pytest.mark.parametrize(("tasks", "backlog", "later"), [("1", 300, 60), ("3", 30, 10)])
def test_rows_with_changed_keys_keep_their_values_across_a_restart(
    case: SinkCase, worker: WorkerProcess, tasks: str, backlog: int, later: int
) -> None:
    """If another task reads the delete, it is committed first: one cycle per chain of changes."""
    case.create_topic(PARTITIONS)
    shop = Shop(case, int(tasks))
    shop.live(backlog)
    case.start(**CONFIG, tasks__max=tasks)
    shop.assert_landed()
    shop.live(later)
    worker.kill_group()
    shop.live(later)
    worker.start()
    shop.assert_landed()
    assert set(worker.states(case.name)) == {"RUNNING"}


@pytest.mark.long  # in every run: test_insert_with_unread_delete_is_not_committed
def test_insert_without_its_delete_fails_the_task_or_has_null(case: SinkCase) -> None:
    case.create_topic(PARTITIONS)
    shop = Shop(case, 0)
    shop._send = Producer({"bootstrap.servers": case.bootstrap_servers})
    shop._upsert({"id": 1, "n": 1, "blob": "first"}, sent=True)
    shop._upsert(
        {"id": 3, "n": 2, "blob": "?"}, sent=False, headers={"__debezium.oldkey": {"id": 2}}
    )
    assert shop._send.flush(30) == 0
    case.start(**CONFIG)
    trace = case.await_failure()
    assert "the delete of the key change [[2], [3]] (old, new) was not found" in trace
    assert "was not found in partitions 1, 2" in trace
    case.start(**CONFIG, iceberg__ext__unknown_value="null")
    case.restart_task()
    case.await_caught_up()
    found = {row["id"]: row["blob"] for row in case.lakehouse.rows(case.table).to_pylist()}
    assert found == {1: "first", 3: None}
