"""The dead-letter table of the Iceberg sink, whose rows are committed in the same cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from iceberg_staging_rows import BASE, ORDERS_0, batch, read, record
from sink_task_stand import EPOCH, TABLES, Stand, make_stand

from connect_py.api.dead_letter import DeadLetter, Replay
from connect_py.api.errors import ConfigError, ConnectError, DataError, FailureReason
from connect_py.api.record import RecordOrigin, TimestampType
from connect_py.api.task import SinkTask
from connect_py.error_handling.errant_record_reporter import TaskErrantRecordReporter
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import ErrorHandler
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.stage import Stage
from connect_py.error_handling.task_dead_letters import TaskDeadLetters
from connect_py.testing import FakeClock
from connectors.iceberg.config.sink_config import IcebergSinkConfig, validate
from connectors.iceberg.dead_letters.dead_letter_rows import DeadLetterRows, config_hash
from connectors.iceberg.protocol.messages import Need, OpenTable, Report, StartCommit, TableRefused
from connectors.iceberg.routing.router import Router
from connectors.iceberg.staging.table_creation import TableCreation
from connectors.iceberg.table.table import TableRequest, WriteMode

TABLE = "db.dead_letters"
PROPS = {"errors.deadletterqueue.iceberg.table": TABLE, "errors.tolerance": "all"}
HEADERS = {
    "type": "list",
    "element-id": 21,
    "element-required": False,
    "element": {
        "type": "struct",
        "fields": [
            {"id": 22, "name": "key", "type": "string", "required": True},
            {"id": 23, "name": "value", "type": "binary", "required": False},
        ],
    },
}
COLUMNS: list[tuple[str, Any]] = [
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "long"),
    ("timestamp", "timestamptz"),
    ("key", "binary"),
    ("value", "binary"),
    ("headers", HEADERS),
    ("_dlq_reason", "string"),
    ("stage", "string"),
    ("error_message", "string"),
    ("error_stacktrace", "string"),
    ("config_hash", "string"),
]


def letter(offset: int, reason: FailureReason = FailureReason.VALUE_CONVERTER) -> DeadLetter:
    origin = RecordOrigin("orders", 0, offset, b"k", b"\xff", (("h", b"x"), ("h", None)))
    return DeadLetter(
        origin,
        1_700_000_000_123,
        TimestampType.CREATE_TIME,
        reason,
        "VALUE_CONVERTER",
        "org.x.Converter",
        "org.x.DataException",
        "not readable",
        1_700_000_001_000,
    )


def test_record_headers_are_kept_even_if_named_like_replay_headers() -> None:
    rows = DeadLetterRows("orders-sink", 0, {})
    own = ("connect-py.replay", b"no place of ours")
    found = letter(7)
    mine = replace(found, origin=found.origin._replace(headers=(own, ("h", b"x"))))
    replay = Replay("orders", 0, 3, 1)
    again = replace(
        mine,
        origin=mine.origin._replace(headers=(*mine.origin.headers, replay.to_header())),
        replay=replay,
    )
    for dead in (mine, again):
        (batch,) = rows.batches([dead])
        (row,) = batch.value.data.to_pylist()
        assert [(h["key"], h["value"]) for h in row["headers"]] == [own, ("h", b"x")]
        assert (row["offset"], row["attempt"]) == ((3, 1) if dead is again else (7, 0))


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    return make_stand(tmp_path, monkeypatch, PROPS)


def poll(stand: Stand, start: int, stop: int, bad: Mapping[int, DeadLetter]) -> None:
    """One poll as the worker brings it: letters first, then what is left, then the end."""
    for dead in bad.values():
        stand.task.put_dead_letter(dead)
    good = [record({"n": offset}, offset) for offset in range(start, stop) if offset not in bad]
    if good:
        stand.task.put(good)
    stand.task.end_poll({ORDERS_0: stop})


def cycle(stand: Stand, number: int) -> Report:
    stand.hear(StartCommit(EPOCH, number, {}))
    return stand.reports()[-1]


def letters(stand: Stand, report: Report) -> list[dict[str, Any]]:
    return read(stand.files(report, TABLE))


def test_first_dead_letter_requests_its_table_and_stages_nothing(stand: Stand) -> None:
    poll(stand, 0, 3, {})
    poll(stand, 3, 6, {4: letter(4)})
    asked = stand.last(OpenTable)
    assert (asked.table, asked.need) == (TABLE, Need.CREATE)
    schema = TableRequest.from_text(asked.schema).schema
    assert schema is not None
    types = {field["name"]: field["type"] for field in schema["fields"]}
    assert types["timestamp"] == "timestamptz"
    assert types["value"] == "binary"
    assert types["headers"]["type"] == "list"
    assert types["_dlq_reason"] == "string"
    assert stand.context.seeks[-1] == {ORDERS_0: 3}
    report = cycle(stand, 1)
    assert (report.ranges[ORDERS_0].start, report.ranges[ORDERS_0].next) == (0, 3)
    assert stand.rows(report) == dict.fromkeys(TABLES, 3)


def test_a_letter_is_staged_with_the_rows_around_it(stand: Stand) -> None:
    poll(stand, 0, 3, {1: letter(1)})
    stand.open_table(TABLE, COLUMNS)
    poll(stand, 0, 3, {1: letter(1)})
    report = cycle(stand, 1)
    assert stand.rows(report) == {**dict.fromkeys(TABLES, 2), TABLE: 1}
    part = report.ranges[ORDERS_0].tables[TABLE]
    assert (part.filter, part.first) == (0, 1)
    (row,) = letters(stand, report)
    assert (row["topic"], row["partition"], row["offset"]) == ("orders", 0, 1)
    assert (row["key"], row["value"]) == (b"k", b"\xff")
    assert row["headers"] == [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    assert (row["_dlq_reason"], row["stage"], row["error_message"]) == (
        "value_converter",
        "VALUE_CONVERTER",
        "not readable",
    )
    assert len(row["config_hash"]) == 16


def test_a_poll_of_nothing_but_letters_moves_on(stand: Stand) -> None:
    stand.open_table(TABLE, COLUMNS)
    poll(stand, 0, 2, {0: letter(0), 1: letter(1)})
    report = cycle(stand, 1)
    assert (report.ranges[ORDERS_0].start, report.ranges[ORDERS_0].next) == (0, 2)
    assert stand.rows(report) == {TABLE: 2}


def test_dead_letter_below_its_table_position_is_not_written_again(stand: Stand) -> None:
    poll(stand, 0, 3, {1: letter(1)})
    stand.open_table(TABLE, COLUMNS, position=2)
    poll(stand, 0, 4, {1: letter(1), 3: letter(3)})
    assert [row["offset"] for row in letters(stand, cycle(stand, 1))] == [3]


def test_record_failing_twice_becomes_one_dead_letter_with_last_reason(stand: Stand) -> None:
    stand.open_table(TABLE, COLUMNS)
    stand.task.put_dead_letter(letter(0))
    poll(stand, 0, 1, {0: letter(0, FailureReason.SINK)})
    assert [row["_dlq_reason"] for row in letters(stand, cycle(stand, 1))] == ["sink"]


def test_letters_of_a_partition_that_was_given_up_are_forgotten(stand: Stand) -> None:
    stand.open_table(TABLE, COLUMNS)
    stand.task.put_dead_letter(letter(0))
    stand.task.close([ORDERS_0])
    stand.task.open([ORDERS_0])
    # of the same poll, reported while nobody knows where the partition stands
    stand.task.put_dead_letter(letter(1))
    stand.attach()
    stand.task.end_poll({})
    poll(stand, 0, 1, {})
    assert stand.rows(cycle(stand, 1)).get(TABLE) is None


def test_misfit_rows_become_dead_letters_of_the_same_cycle(stand: Stand) -> None:
    clock = FakeClock()
    handler = ErrorHandler(
        ErrorConfig(tolerate_all=True), [TaskDeadLetters(stand.task, clock)], clock, clock.sleep
    )
    stand.context.errant_record_reporter = TaskErrantRecordReporter(handler, "Task")  # type: ignore[assignment] # the real one
    stand.open_table(TABLE, COLUMNS)
    stand.task.put([record({"n": 0}, 0), record({"n": "many"}, 1), record({"n": 2}, 2)])
    stand.task.end_poll({ORDERS_0: 3})
    report = cycle(stand, 1)
    assert stand.rows(report) == {**dict.fromkeys(TABLES, 2), TABLE: 1}
    (row,) = letters(stand, report)
    assert (row["offset"], row["_dlq_reason"], row["stage"]) == (1, "does_not_fit", "TASK_PUT")
    assert "column n" in row["error_message"]
    assert row["error_stacktrace"].startswith("org.apache.kafka.connect.errors.DataException: ")


class Keeper(SinkTask):
    """Keeps the letters that it is given."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []

    def start(self, props: Mapping[str, str]) -> None:
        pass

    def stop(self) -> None:
        pass

    def put_dead_letter(self, letter: DeadLetter) -> None:
        self.letters.append(letter)


def test_dead_letter_has_all_cause_messages_and_counts_once() -> None:
    keeper = Keeper()
    reporter = TaskDeadLetters(keeper, FakeClock())
    error = DataError("Failed to deserialize data for topic orders to Avro: ")
    error.__cause__ = ValueError("unexpected byte 7")
    place = RecordOrigin("orders", 0, 3)
    for _ in range(2):  # its partition waited, and it was read again
        reporter.report(FailedRecord(Stage.VALUE_CONVERTER, "org.x.Converter", error, place))
    assert keeper.letters[1].error_message == (
        "Failed to deserialize data for topic orders to Avro: \nCaused by: ValueError: unexpected "
        "byte 7"
    )
    trace = keeper.letters[1].error_trace
    assert trace is not None
    assert trace.count("unexpected byte 7") >= 2, "in Java's form, and in Python's"
    assert len(keeper.letters) == 2, "both polls need it"
    assert reporter.values() == {"deadletterqueue-produce-requests": 1}


def test_message_without_a_change_event_has_its_own_failure_reason() -> None:
    events = {"iceberg.ext.envelope": "debezium", "iceberg.tables.upsert-mode-enabled": "true"}
    creation = TableCreation(
        IcebergSinkConfig.parse(BASE | PROPS | {"iceberg.tables": "db.orders", **events})
    )
    refused = creation.refused_rows("db.orders", batch([record({"some": "text"}, 0)]))
    assert refused is not None
    (error,) = refused.errors.values()
    assert isinstance(error, DataError)
    assert error.reason is FailureReason.NO_CHANGE_EVENT


def test_row_that_its_table_passed_still_becomes_a_dead_letter(stand: Stand) -> None:
    clock = FakeClock()
    handler = ErrorHandler(
        ErrorConfig(tolerate_all=True), [TaskDeadLetters(stand.task, clock)], clock, clock.sleep
    )
    stand.context.errant_record_reporter = TaskErrantRecordReporter(handler, "Task")  # type: ignore[assignment] # the real one
    stand.open_table(TABLE, COLUMNS, position=1)
    for name in TABLES:
        # their commit came first, and then somebody died
        stand.open_table(name, [("n", "long")], position=4)
    values = ["bad", 1, "bad", 3, 4]
    stand.task.put([record({"n": value}, offset) for offset, value in enumerate(values)])
    stand.task.end_poll({ORDERS_0: 5})
    report = cycle(stand, 1)
    assert stand.rows(report) == {**dict.fromkeys(TABLES, 1), TABLE: 1}
    assert [row["offset"] for row in letters(stand, report)] == [2]


def test_skipped_missing_dead_letter_table_fails_the_task(stand: Stand) -> None:
    poll(stand, 0, 1, {0: letter(0)})
    stand.hear(TableRefused(EPOCH, TABLE, "does not exist", skip=True))
    with pytest.raises(ConnectError, match=f"dead-letter table {TABLE} does not exist"):
        poll(stand, 0, 1, {0: letter(0)})


def test_unusable_dead_letter_table_fails_task_and_names_the_record(stand: Stand) -> None:
    stand.open_table(TABLE, [*COLUMNS, ("owner", "string")], required=["owner"])
    with pytest.raises(
        ConnectError, match=r"dead-letter record of topic 'orders' partition 0 at offset 0.*owner"
    ):
        poll(stand, 0, 1, {0: letter(0)})


def test_rows_routed_to_the_dead_letter_table_fail_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = make_stand(tmp_path, monkeypatch, PROPS)
    routed = {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "t"}
    config = IcebergSinkConfig.parse(BASE | PROPS | routed)
    monkeypatch.setattr(stand.task._parts.intake, "router", Router(config))
    with pytest.raises(ConnectError, match="which is the dead-letter table"):
        stand.task.put([record({"n": 1, "t": TABLE}, 0)])


def test_a_task_that_keeps_no_letters_refuses_the_key() -> None:
    from connect_py.api.task import SinkTask

    class Plain(SinkTask):
        def start(self, props: Mapping[str, str]) -> None:
            return

        def stop(self) -> None:
            return

    with pytest.raises(ConfigError, match="Plain does not support a dead letter table"):
        TaskDeadLetters(Plain(), FakeClock())


def test_the_table_is_appended_to_and_created_in_every_mode() -> None:
    base = {"name": "c", "iceberg.catalog.type": "jdbc", "iceberg.tables": "db.orders", **PROPS}
    config = IcebergSinkConfig.parse(
        base
        | {
            "iceberg.tables.upsert-mode-enabled": "true",
            "iceberg.tables.default-id-columns": "id",
            "iceberg.tables.default-partition-by": "id",
            "connector.class": "org.apache.iceberg.connect.X",
        }
    )
    assert config.mode_of("db.orders") is WriteMode.MERGE
    assert config.mode_of(TABLE) is WriteMode.APPEND
    assert config.may_create(TABLE)
    assert not config.may_create("db.orders")
    assert (config.format_version("db.orders"), config.format_version(TABLE)) == (3, 2)
    assert config.table("db.orders").partition_by
    assert config.table(TABLE).partition_by == config.table(TABLE).id_columns == ()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("letters", "expected namespace.table"),
        ("db.orders", "use a separate table"),
    ],
)
def test_a_table_that_cannot_hold_letters_is_refused(table: str, problem: str) -> None:
    key = "errors.deadletterqueue.iceberg.table"
    base = {"name": "c", "iceberg.catalog.type": "jdbc", "iceberg.tables": "db.orders", key: table}
    assert any(problem in error for error in validate(base)[key].errors)


def test_configuration_hash_distinguishes_versions_and_ignores_secrets() -> None:
    base = {"name": "c", "topics": "orders"}
    assert config_hash(base) == config_hash(dict(reversed(base.items())))
    assert config_hash(base) != config_hash(base | {"topics": "customers"})
    assert config_hash(base) == config_hash(base | {"iceberg.catalog.jdbc.password": "x"})
