"""Bad records of every stage and format: they are in the dead-letter topic and table, all others in
the sink table."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from bad_input import lakehouse, worker
from bad_records import FORMATS, REASONS, STAGES, TABLE_COLUMNS, BadRecords
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from exactly_once_events import SHORT_TIMEOUTS
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType
from schema_registry_stub import schema_registry
from sink_case import SinkCase
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

__all__ = ["lakehouse", "worker"]  # fixtures

CATCH_UP_SECONDS = 90.0
READ_SECONDS = 60.0
FAULTS = "CONNECT_PY_FAULTS"
ERRORS = "__connect.errors."
TASK = "org.apache.iceberg.connect.IcebergSinkTask"
TYPES = {"long": LongType(), "int": IntegerType(), "double": DoubleType(), "string": StringType()}
LETTERS = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.replication.factor": "1",
    "errors.deadletterqueue.context.headers.enable": "true",
}


class LoadedCase:
    """A connector on a topic of one format, with an existing table of the types that the load
    produces.
    """

    def __init__(self, case: SinkCase, load: BadRecords, count: int, registry_url: str) -> None:
        self.load, self.count = load, count
        self.letters_table = f"{case.table}_dead"
        self.case = dataclasses.replace(
            case,
            extra={
                **load.config(registry_url),
                **LETTERS,
                "errors.deadletterqueue.topic.name": case.dead_letters,
                "errors.deadletterqueue.iceberg.table": self.letters_table,
            },
        )
        columns = [
            NestedField(i, name, TYPES[kind], required=False)
            for i, (name, kind) in enumerate(TABLE_COLUMNS, 1)
        ]
        case.lakehouse.catalog.create_table(case.table, Schema(*columns))

    def fill(self) -> None:
        self.case.create_topic()
        producer = Producer({"bootstrap.servers": self.case.bootstrap_servers, "linger.ms": 20})
        for number in range(self.count):
            raw = self.load.record(number)
            while True:
                try:
                    producer.produce(
                        self.case.name,
                        raw.value,
                        raw.key,
                        headers=raw.headers,
                        timestamp=1_000 + number,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(READ_SECONDS) == 0

    def check(self) -> None:
        bad = self.load.all_bad(self.count)
        self.case.assert_complete(n for n in range(self.count) if n not in bad)
        self._check_table(bad)
        self._check_topic(dict(bad))
        self.case.lakehouse.assert_ledgers_chain(self.letters_table)

    def _check_table(self, bad: dict[int, str]) -> None:
        rows = self.case.lakehouse.rows(self.letters_table).to_pylist()
        assert sorted(row["offset"] for row in rows) == sorted(bad)
        for row in rows:
            number = row["offset"]
            raw = self.load.record(number)
            assert (row["topic"], row["partition"], row["stage"]) == (
                self.case.name,
                0,
                bad[number],
            )
            assert row["_dlq_reason"] == REASONS[bad[number]]
            assert (row["key"], row["value"]) == (raw.key, raw.value)
            assert [(h["key"], h["value"]) for h in row["headers"]] == (raw.headers or [])
            assert row["timestamp"].timestamp() == (1_000 + number) / 1000
            assert (row["connector"], row["task"]) == (self.case.name, 0)
            assert row["error_class"]
            assert row["failed_at"]
            assert len(row["config_hash"]) == 16

    def _check_topic(self, bad: dict[int, str]) -> None:
        config = self.case.config()
        classes = {
            f"{side.upper()}_CONVERTER": config[f"{side}.converter"]
            for side in ("key", "value", "header")
        }
        classes["TRANSFORMATION"] = config["transforms.cast.type"]
        letters = dead_letters(self.case)
        assert len(letters) == len(bad)
        for message in letters:
            headers = message.headers() or []
            told = {k.removeprefix(ERRORS): v.decode() for k, v in headers if k.startswith(ERRORS)}
            number = int(told["offset"])
            stage = bad.pop(number)  # each once
            raw = self.load.record(number)
            assert headers[: len(raw.headers or [])] == (raw.headers or [])
            assert len(headers) == len(raw.headers or []) + len(told)
            assert (told["stage"], told["topic"], told["partition"]) == (stage, self.case.name, "0")
            assert (told["connector.name"], told["task.id"]) == (self.case.name, "0")
            assert told["class.name"] == classes.get(stage, TASK)
            assert told["exception.class.name"].startswith("org.apache.kafka.connect.errors.")
            assert told["exception.message"]
            assert told["exception.stacktrace"]
            assert (message.key(), message.value()) == (raw.key, raw.value)
            assert message.timestamp()[1] == 1_000 + number
        assert bad == {}


def dead_letters(case: SinkCase) -> Sequence[Message]:
    consumer = Consumer({"bootstrap.servers": case.bootstrap_servers, "group.id": "reader"})
    try:
        place = TopicPartition(case.dead_letters, 0, 0)
        _, end = consumer.get_watermark_offsets(place, READ_SECONDS)
        consumer.assign([place])
        found: list[Message] = []
        while len(found) < end:
            got = consumer.consume(end - len(found), READ_SECONDS)
            assert got, f"{len(found)} of {end} letters"
            found += got
    finally:
        consumer.close()
    return found


@contextmanager
def loaded_cases(
    forms: Sequence[str],
    count: int,
    worker: WorkerProcess,
    lakehouse: Lakehouse,
    broker: KafkaBroker,
    prefix: str,
) -> Iterator[list[LoadedCase]]:
    with ExitStack() as stack:
        cases = []
        for form in forms:
            load = BadRecords(form)
            registry = stack.enter_context(schema_registry(load.registered()))
            case = SinkCase(worker, lakehouse, broker.bootstrap_servers, f"{prefix}{form}")
            cases.append(LoadedCase(case, load, count, registry.url))
        yield cases
        assert worker.healthy()
        for made in cases:
            worker.delete(made.case.name)


def check_formats(
    forms: Sequence[str],
    count: int,
    worker: WorkerProcess,
    lakehouse: Lakehouse,
    broker: KafkaBroker,
    prefix: str,
) -> None:
    with loaded_cases(forms, count, worker, lakehouse, broker, prefix) as cases:
        for made in cases:
            made.fill()
            made.case.start()
        for made in cases:
            worker.wait_until(
                lambda name=made.case.name: caught_up(broker.bootstrap_servers, name, name),
                CATCH_UP_SECONDS + count / 1000,
                f"{made.case.name} to catch up",
            )
            made.check()
        bad = len(cases[0].load.all_bad(count)) // len(REASONS)
        for made in cases:
            for reason in REASONS.values():
                worker.wait_until(
                    lambda name=made.case.name, reason=reason: counted(worker, name, reason) == bad,
                    READ_SECONDS,
                    f"{bad} letters of {made.case.name} for {reason} in the metrics",
                )


def counted(worker: WorkerProcess, topic: str, reason: str) -> float | None:
    """The counter of a topic and reason."""
    for line in httpx.get(f"{worker.url}/metrics", timeout=30).text.splitlines():
        if (
            line.startswith("connect_py_cdc_dlq_total{")
            and f'topic="{topic}"' in line
            and f'"{reason}"' in line
        ):
            return float(line.rpartition(" ")[2])
    return None


@pytest.mark.timeout(400)  # three connectors at once, each with a JVM, on a crowded machine
def test_dead_letter_topic_and_table_contain_every_bad_record(
    worker: WorkerProcess, lakehouse: Lakehouse, kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    check_formats(FORMATS[:3], 20_000, worker, lakehouse, kafka_broker, topic_prefix)


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.timeout(3600)  # a million records of each format
@pytest.mark.parametrize("form", FORMATS)
def test_million_records_per_format_split_into_rows_and_dead_letters(
    form: str,
    worker: WorkerProcess,
    lakehouse: Lakehouse,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
) -> None:
    check_formats([form], 1_000_000, worker, lakehouse, kafka_broker, topic_prefix)


@pytest.mark.long
@pytest.mark.timeout(400)  # two runs of a worker with a JVM
def test_kill_between_row_and_dead_letter_commits_keeps_records_exact(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    lake = Lakehouse(tmp_path / "lake")
    lake.catalog.create_namespace("db")
    process = WorkerProcess(
        tmp_path,
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}worker",
        SHORT_TIMEOUTS,
        spark_environment,
    )
    try:
        case = SinkCase(process, lake, kafka_broker.bootstrap_servers, f"{topic_prefix}killed")
        made = LoadedCase(case, Frequent("json"), 3_000, "")
        made.fill()
        # of the first of two tables
        process.environment[FAULTS] = "after_compare_and_swap=killgroup@1"
        process.start()
        made.case.start()
        process.wait_for_death(CATCH_UP_SECONDS)
        process.environment.pop(FAULTS)
        process.start()
        bad = made.load.all_bad(made.count)
        process.wait_until(
            lambda: caught_up(kafka_broker.bootstrap_servers, made.case.name, made.case.name),
            CATCH_UP_SECONDS,
            "the last life to catch up",
        )
        made.case.assert_complete(n for n in range(made.count) if n not in bad)
        made._check_table(bad)
        assert {row["stage"] for row in lake.rows(made.letters_table).to_pylist()} == set(REASONS)
    finally:
        process.close()


class Frequent(BadRecords):
    """One record of 20 is bad."""

    def bad(self, number: int) -> str | None:
        return None if number % 20 else STAGES[number // 20 % len(STAGES)]


REPLAYED = 20
BROKEN, MISFIT = 3, 7  # records


@pytest.mark.long
# six commands with a JVM each in addition to the worker's, on a crowded machine
@pytest.mark.timeout(360)
def test_replayed_dead_letters_keep_their_original_offsets_and_land_once(
    worker: WorkerProcess,
    lakehouse: Lakehouse,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    made = SinkCase(worker, lakehouse, kafka_broker.bootstrap_servers, f"{topic_prefix}replayed")
    letters = f"{made.table}_dead"
    case = dataclasses.replace(
        made,
        extra={
            "errors.tolerance": "all",
            "errors.deadletterqueue.iceberg.table": letters,
            "errors.deadletterqueue.iceberg.replay.topic": f"{made.name}-again",
            "transforms": "cast,at",
            "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
            "transforms.cast.spec": "code:int32",
            "transforms.at.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            "transforms.at.offset.field": "at",
            "transforms.at.topic.field": "source",
        },
    )
    values = [
        json.dumps({"id": number, "code": str(number)}).encode() for number in range(REPLAYED)
    ]
    values[BROKEN], values[MISFIT] = b"{ no json", b'{"id": 7, "code": "seven"}'
    case.create_topic()
    case.produce(*values)
    case.start()
    others = [number for number in range(REPLAYED) if number not in (BROKEN, MISFIT)]
    case.assert_complete(others)
    worker.wait_until(
        lambda: lakehouse.rows(letters).num_rows == 2, CATCH_UP_SECONDS, "two letters"
    )

    posted = tmp_path / "connector.json"
    posted.write_text(json.dumps({"name": case.name, "config": case.config()}))
    shown = [json.loads(line) for line in dlq("show", posted).stdout.splitlines()]
    assert [(letter["offset"], letter["value"]["text"]) for letter in shown] == [
        (BROKEN, "{ no json"),
        (MISFIT, '{"id": 7, "code": "seven"}'),
    ]
    for letter, value in zip(
        shown, ('{"id": 3, "code": "3"}', '{"id": 7, "code": "still not"}'), strict=True
    ):
        letter["value"] = {"text": value}
    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text("".join(json.dumps(letter) + "\n" for letter in shown))
    replay = (
        "replay",
        posted,
        "--bootstrap-servers",
        case.bootstrap_servers,
        "--fixed",
        str(fixed),
    )
    assert dlq(*replay, fault="before_replay_commit=kill").returncode == -signal.SIGKILL
    assert dlq(*replay).stdout == "2 records replayed; already replayed: 0\n"
    fixed.write_text(json.dumps(shown[0]))
    assert dlq(*replay).stdout == "0 records replayed; already replayed: 1\n"
    worker.wait_until(
        lambda: case.ids() == sorted([*others, BROKEN]), CATCH_UP_SECONDS, "the fixed record"
    )
    worker.wait_until(
        lambda: lakehouse.rows(letters).num_rows == 3, CATCH_UP_SECONDS, "the one that failed again"
    )
    again = [row for row in lakehouse.rows(letters).to_pylist() if row["attempt"]]
    assert [(row["topic"], row["offset"], row["attempt"]) for row in again] == [
        (case.name, MISFIT, 1)
    ]
    (row,) = (row for row in lakehouse.rows(case.table).to_pylist() if row["id"] == BROKEN)
    assert (row["at"], row["source"]) == (BROKEN, case.name)

    counts = json.loads(dlq("list", posted, "--json").stdout)
    assert {(count["reason"], count["state"], count["letters"]) for count in counts} == {
        ("value_converter", "new", 1),
        ("transformation", "replayed", 1),
        ("transformation", "failed-again", 1),
    }
    kafka = ("--worker", str(worker.properties))
    assert dlq("delete", posted, "--state", "replayed", *kafka).stdout == "2 of 3 records deleted\n"
    (left,) = lakehouse.rows(letters).to_pylist()
    assert (left["offset"], left["attempt"]) == (MISFIT, 1)
    case.produce(b"{ no json either")
    worker.wait_until(
        lambda: lakehouse.rows(letters).num_rows == 2, CATCH_UP_SECONDS, "the connector goes on"
    )
    worker.delete(case.name)


@pytest.mark.long
@pytest.mark.timeout(400)  # three commands with a JVM each in addition to the worker's
@pytest.mark.parametrize(
    ("settings", "options", "expected"),
    [
        pytest.param(
            {"iceberg.ext.ordering-columns": "at"},
            (),
            {1: 5, 2: 100, 3: 100},
            marks=pytest.mark.long,
        ),
        ({}, ("--only-missing-keys",), {1: 5, 2: 100, 3: 7}),
    ],
    ids=["ordered", "only missing keys"],
)
def test_letters_of_a_merged_table_overwrite_nothing_that_is_newer(
    worker: WorkerProcess,
    lakehouse: Lakehouse,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
    settings: dict[str, str],
    options: tuple[str, ...],
    expected: dict[int, int],
) -> None:
    made = SinkCase(worker, lakehouse, kafka_broker.bootstrap_servers, f"{topic_prefix}merged")
    letters = f"{made.table}_dead"
    case = dataclasses.replace(
        made,
        extra={
            "errors.tolerance": "all",
            "errors.deadletterqueue.iceberg.table": letters,
            "errors.deadletterqueue.iceberg.replay.topic": f"{made.name}-again",
            "iceberg.tables.upsert-mode-enabled": "true",
            "iceberg.tables.default-id-columns": "id",
            **settings,
        },
    )
    columns = [
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "n", IntegerType(), required=False),
        NestedField(3, "at", LongType(), required=False),
    ]
    lakehouse.catalog.create_table(case.table, Schema(*columns), properties={"format-version": "2"})
    case.create_topic()
    case.produce(
        {"id": 1, "n": "one", "at": 10},
        {"id": 2, "n": "two", "at": 10},
        {"id": 1, "n": 5, "at": 20},
        {"id": 3, "n": 7, "at": 20},
        {"id": 3, "n": "three", "at": 30},
    )
    case.start()
    case.await_caught_up()
    worker.wait_until(
        lambda: lakehouse.rows(letters).num_rows == 3, CATCH_UP_SECONDS, "three letters"
    )

    posted = tmp_path / "connector.json"
    posted.write_text(json.dumps({"name": case.name, "config": case.config()}))
    fixed = tmp_path / "fixed.jsonl"
    shown = [json.loads(line) for line in dlq("show", posted).stdout.splitlines()]
    for letter in shown:
        letter["value"] = {"text": json.dumps({**json.loads(letter["value"]["text"]), "n": 100})}
    fixed.write_text("".join(json.dumps(letter) + "\n" for letter in shown))
    replay = (
        "replay",
        posted,
        "--bootstrap-servers",
        case.bootstrap_servers,
        "--fixed",
        str(fixed),
    )
    wrong = dlq(*replay, *(() if options else ("--only-missing-keys",)))
    assert (wrong.returncode, "only-missing-keys" in wrong.stderr) == (1, True)
    assert dlq(*replay, *options).stdout == "3 records replayed; already replayed: 0\n"

    def found() -> dict[int, int]:
        return {row["id"]: row["n"] for row in lakehouse.rows(case.table).to_pylist()}

    worker.wait_until(lambda: found() == expected, CATCH_UP_SECONDS, f"{expected}, not {found()}")
    assert lakehouse.rows(case.table).num_rows == 3
    assert lakehouse.rows(letters).num_rows == 3, "none failed again"
    worker.delete(case.name)


def dlq(
    command: str, config: Path, *options: str, fault: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `connect-py dlq`."""
    return subprocess.run(
        [
            str(Path(sys.executable).parent / "connect-py"),
            "dlq",
            command,
            "--config",
            str(config),
            *options,
        ],
        env={**os.environ, FAULTS: fault},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
