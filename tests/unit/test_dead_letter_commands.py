"""`connect-py dlq`, without Kafka and without a JVM."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from fixtures.command_line import command_app, fake_parts
from lakehouse import Lakehouse
from no_jvm import NoJvm
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from typer.testing import CliRunner

from connect_py.api.dead_letter import Replay
from connect_py.api.errors import ConnectError
from connect_py.testing import FakeSharedServices
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg_tools import client_error_log
from connectors.iceberg_tools.commands.dlq import delete, list_, replay, show
from connectors.iceberg_tools.dead_letters import dead_letter_table, replay_log
from connectors.iceberg_tools.dead_letters.dead_letter_record import DeadLetterRecord
from connectors.iceberg_tools.dead_letters.dead_letter_table import DELETED, DeadLetterTable
from connectors.iceberg_tools.dead_letters.replay_log import ReplayLog

CONFIG = {
    "name": "orders",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "db.orders",
    "iceberg.catalog.type": "jdbc",
    "errors.deadletterqueue.iceberg.table": "db.dead",
    "errors.deadletterqueue.iceberg.replay.topic": "again",
}

APP = command_app(
    names={"list": list_, "delete": delete, "show": show, "replay": replay},
    parts=fake_parts(services=FakeSharedServices()),
)


def dlq(folder: Path, command: str, *options: str) -> tuple[int, str]:
    posted = folder / "connector.json"
    posted.write_text(json.dumps(CONFIG))
    told = CliRunner().invoke(APP, [command, "--config", str(posted), *options])
    return told.exit_code, told.output


def letter(offset: int) -> DeadLetterRecord:
    return DeadLetterRecord("orders", 0, offset, 0, 1_000, b"k", b"v", [], "value_converter", {})


class TopiclessConsumer:
    """Consumer of a cluster without the topic."""

    def __init__(self, settings: dict[str, Any]) -> None:
        assert settings["allow.auto.create.topics"] is False

    def list_topics(self, topic: str, _timeout: float) -> SimpleNamespace:
        missing = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
        return SimpleNamespace(topics={topic: missing})

    def close(self) -> None:
        """Do nothing."""


def test_dry_run_takes_no_transactional_id_and_creates_no_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acts(*_: object) -> None:
        pytest.fail("a dry run acts")

    monkeypatch.setattr(replay_log, "AdminClient", acts)
    monkeypatch.setattr(replay_log, "Producer", acts)
    monkeypatch.setattr(client_error_log, "Consumer", TopiclessConsumer)
    monkeypatch.setattr(DeadLetterTable, "records", lambda *_, **__: [letter(1), letter(2)])
    status, told = dlq(tmp_path, "replay", "--bootstrap-server", "none:1", "--dry-run")
    assert (status, told) == (0, "2 records would be replayed; already replayed: 0\n")


def test_known_topic_that_disappears_is_not_read_as_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_error_log, "Consumer", TopiclessConsumer)
    log = ReplayLog({"bootstrap.servers": "none:1"}, "again", "orders")
    log._producer = SimpleNamespace()  # type: ignore[assignment] # it is open, and did not create the topic
    with pytest.raises(ConnectError, match="again cannot be read"):
        log.written()


# --- the table


class Kept:
    """A dead-letter table with one data file for each call of `add`."""

    def __init__(self, folder: Path) -> None:
        lake = Lakehouse(folder / "lake")
        lake.catalog.create_namespace("db")
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        self.schema = pa.schema(
            [
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("attempt", pa.int32()),
                ("timestamp", pa.timestamp("us", "UTC")),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(header)),
                ("_dlq_reason", pa.string()),
                ("stage", pa.string()),
                ("failed_at", pa.timestamp("us", "UTC")),
            ]
        )
        self.table = lake.catalog.create_table("db.dead", self.schema)

    def add(self, topic: str, offsets: range, reason: str, attempt: int = 0) -> None:
        now = datetime.fromtimestamp(1.5, UTC)
        rows = [
            {
                "topic": topic,
                "partition": 0,
                "offset": offset,
                "attempt": attempt,
                "timestamp": now,
                "key": None,
                "value": b"v",
                "headers": [{"key": "h", "value": b"x"}],
                "_dlq_reason": reason,
                "stage": "S",
                "failed_at": now,
            }
            for offset in offsets
        ]
        self.table.append(pa.Table.from_pylist(rows, schema=self.schema))

    def location(self, _lake: object, name: str) -> tuple[str, dict[str, str]]:
        assert name == "db.dead"
        return self.table.metadata_location, {}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    made = Kept(tmp_path)
    monkeypatch.setattr(dead_letter_table, "LakeClient", NoJvm)
    monkeypatch.setattr(
        NoJvm, "metadata", lambda lake, name: made.location(lake, name), raising=False
    )
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Data files in the order in which they were opened."""
    found: list[str] = []
    new_input = PyArrowFileIO.new_input

    def noted(self: PyArrowFileIO, location: str) -> PyArrowFile:
        if location.endswith(".parquet") and location not in found:
            found.append(location)
        return new_input(self, location)

    monkeypatch.setattr(PyArrowFileIO, "new_input", noted)
    return found


def shown(folder: Path, *options: str) -> list[tuple[str, int, int]]:
    status, told = dlq(folder, "show", *options)
    assert status == 0, told
    letters = [json.loads(line) for line in told.splitlines()]
    return sorted((letter["topic"], letter["offset"], letter["attempt"]) for letter in letters)


def test_only_files_with_letters_that_are_asked_for_are_read(
    tmp_path: Path, kept: Kept, opened: list[str]
) -> None:
    kept.add("orders", range(100), "value_converter")
    kept.add("orders", range(100, 200), "sink")
    kept.add("payments", range(100), "value_converter")
    kept.add("orders", range(7, 8), "sink", attempt=1)
    for options, letters, files in (
        (["orders/0/7"], [("orders", 7, 0), ("orders", 7, 1)], 2),
        (["orders/0/107", "payments/0/3"], [("orders", 107, 0), ("payments", 3, 0)], 2),
        (["orders/0/7", "--reason", "sink"], [("orders", 7, 1)], 2),
        (["--topic", "payments"], [("payments", offset, 0) for offset in range(100)], 1),
        (["--topic", "payments", "--reason", "sink"], [], 0),
    ):
        opened.clear()
        assert shown(tmp_path, *options) == letters
        assert len(opened) == files, options


def test_letters_are_read_one_file_after_the_other(kept: Kept, opened: list[str]) -> None:
    for begin in (0, 2_500, 5_000):
        kept.add("orders", range(begin, begin + 2_500), "sink")
    letters = DeadLetterTable(IcebergSinkConfig.parse(CONFIG), FakeSharedServices()).records()
    next(letters)
    assert len(opened) == 1
    assert sum(1 for _ in letters) == 7_499
    assert len(opened) == 3


def test_a_place_without_a_letter_is_said(tmp_path: Path, kept: Kept) -> None:
    kept.add("orders", range(3), "sink")
    status, told = dlq(tmp_path, "show", "orders/0/1", "orders/0/9")
    assert status == 1
    assert "orders/0/9 is not a dead-letter record" in told


def test_of_fixed_records_only_the_letters_are_read(
    tmp_path: Path, kept: Kept, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_error_log, "Consumer", TopiclessConsumer)
    kept.add("orders", range(100), "sink")
    kept.add("orders", range(100, 200), "sink")
    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text('{"topic": "orders", "partition": 0, "offset": 150, "value": null}')
    options = ("--bootstrap-server", "none:1", "--dry-run", "--fixed", str(fixed))
    assert dlq(tmp_path, "replay", *options)[1].startswith("1 record would be replayed")
    assert len(opened) == 1
    fixed.write_text('{"topic": "orders", "partition": 0, "offset": 250}')
    status, told = dlq(tmp_path, "replay", *options)
    assert status == 1
    assert "orders/0/250 is not a dead-letter record" in told


def test_letters_are_counted_by_topic_and_reason(tmp_path: Path, kept: Kept) -> None:
    kept.add("orders", range(3), "sink")
    kept.add("payments", range(2), "value_converter")
    counts = json.loads(dlq(tmp_path, "list", "--json")[1])
    assert [(count["topic"], count["reason"], count["letters"]) for count in counts] == [
        ("orders", "sink", 3),
        ("payments", "value_converter", 2),
    ]


class Replayed:
    """Reads the replay topic: letter 2 was tried again."""

    def __init__(self, *_: object) -> None:
        pass

    def written(self) -> set[Replay]:
        return {Replay("orders", 0, 2, 1)}


def test_list_has_headings_and_the_state_of_each_dead_letter(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.add("orders", range(4), "sink")
    kept.add("orders", range(1, 2), "does_not_fit", attempt=1)
    monkeypatch.setattr(replay_log, "ReplayLog", Replayed)
    status, told = dlq(tmp_path, "list", "--bootstrap-server", "none:1")
    assert status == 0
    assert [line.split() for line in told.splitlines()] == [
        ["RECORDS", "STATE", "TOPIC", "REASON", "STAGE", "LAST", "FAILED"],
        ["1", "failed-again", "orders", "does_not_fit", "S", "1970-01-01T00:00:01.500000+00:00"],
        ["2", "new", "orders", "sink", "S", "1970-01-01T00:00:01.500000+00:00"],
        ["2", "replayed", "orders", "sink", "S", "1970-01-01T00:00:01.500000+00:00"],
        ["5", "total"],
    ]
    counts = json.loads(dlq(tmp_path, "list", "--json")[1])
    assert {(count["state"], count["letters"]) for count in counts} == {
        ("failed-again", 1),
        ("new", 3),
        ("replayed", 1),
    }


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (["orders/0/1"], [(1, 0), (1, 1)]),
        (["--state", "failed-again"], [(1, 1)]),
        (["--state", "replayed", "--bootstrap-server", "none:1"], [(1, 0), (2, 0)]),
        (["--reason", "sink", "--older-than", "30d"], [(0, 0), (1, 0), (2, 0), (3, 0)]),
        (["--topic", "payments"], []),
        (["--older-than", "30000d"], []),
    ],
)
def test_letters_that_are_named_are_deleted(
    tmp_path: Path,
    kept: Kept,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    gone: list[tuple[int, int]],
) -> None:
    kept.add("orders", range(4), "sink")
    kept.add("orders", range(1, 2), "does_not_fit", attempt=1)
    monkeypatch.setattr(replay_log, "ReplayLog", Replayed)
    deleted: list[tuple[int, int]] = []
    monkeypatch.setattr(
        DeadLetterTable,
        "delete",
        lambda _, found: deleted.extend((x.offset, x.attempt) for x in found),
    )
    status, told = dlq(tmp_path, "delete", *options, "--dry-run")
    assert (status, told) == (0, f"{len(gone)} of 5 records would be deleted\n")
    assert deleted == []
    status, told = dlq(tmp_path, "delete", *options)
    assert (status, told) == (0, f"{len(gone)} of 5 records deleted\n")
    assert sorted(deleted) == gone


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "select records by position"),
        (["--state", "old"], "--state: must be one of new, failed-again, replayed"),
        (["--state", "replayed"], "replayed needs --bootstrap-server"),
        (["--older-than", "a month"], "is not of the form 30d, 12h, or 45m"),
    ],
)
def test_a_delete_that_names_no_letters_is_refused(
    tmp_path: Path, options: list[str], said: str
) -> None:
    status, told = dlq(tmp_path, "delete", *options)
    assert status == 1
    assert said in told


def test_delete_conditions_name_dead_letters_by_place_in_limited_chunks() -> None:
    empty = (None, None, None, [], "sink", {"stage": "S"})
    heads = [DeadLetterRecord("it's", 0, offset, 0, *empty) for offset in range(DELETED + 1)]
    heads.append(DeadLetterRecord("orders", 3, 7, 2, *empty))
    first, second = dead_letter_table._conditions(heads)
    mine = "(topic = 'it\\'s' AND partition = 0 AND coalesce(attempt, 0) = 0 AND `offset` IN "
    assert first.startswith(f"{mine}(0, 1, ")
    assert second == (
        f"{mine}({DELETED})) OR (topic = 'orders' AND partition = 3 AND attempt = 2 AND `offset` "
        f"IN (7))"
    )
