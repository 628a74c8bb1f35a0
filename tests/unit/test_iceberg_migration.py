"""Migration from a Java sink: the meaning of its configuration, and its positions."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fixtures.command_line import command_app, fake_parts
from java_sink_events import data_complete
from no_jvm import NoJvm
from typer.testing import CliRunner

from connect_py.api.record import TopicPartition
from connect_py.testing import FakeSharedServices
from connectors.iceberg.config.keys import EVOLVE_ADD
from connectors.iceberg.coordinator.control_events import COMMIT_COMPLETE, MAGIC, encode_event
from connectors.iceberg.errors import TableMissingError
from connectors.iceberg.table.table_history import HistoricSnapshot, TableHistory
from connectors.iceberg_tools.commands.migrate import migrate
from connectors.iceberg_tools.migration.config_review import ConfigReview, review
from connectors.iceberg_tools.migration.java_event import DATA_COMPLETE, DATA_WRITTEN, JavaEvent
from connectors.iceberg_tools.migration.java_position import TableTrace, find_position

APACHE = "org.apache.iceberg.connect.IcebergSinkConnector"
TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"
BASE = {
    "name": "orders",
    "connector.class": APACHE,
    "topics": "orders",
    "iceberg.tables": "db.orders",
    "iceberg.catalog.type": "rest",
}
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
KEY = "kafka.connect.offsets.control-iceberg.connect-orders"


def changed(reviewed: ConfigReview, key: str) -> str:
    return " / ".join(text for name, text in reviewed.changes if name == key)


def written(offset: int, table: str = "orders") -> JavaEvent:
    reference = {"catalog": "iceberg", "namespace": ["db"], "name": table}
    return JavaEvent(0, offset, DATA_WRITTEN, "connect-orders", {"table_reference": reference})


def complete(offset: int, *read_to: int | None) -> JavaEvent:
    assigned = [
        {"topic": "orders", "partition": number, "offset": at} for number, at in enumerate(read_to)
    ]
    return JavaEvent(0, offset, DATA_COMPLETE, "connect-orders", {"assignments": assigned})


# --- configuration


def test_keys_ignored_by_apache_sink_but_followed_here_are_reported() -> None:
    told = review(
        {
            **BASE,
            "iceberg.tables.upsert-mode-enabled": "true",
            "iceberg.tables.default-id-columns": "id",
        }
    )
    assert "turns on MERGE" in changed(told, "iceberg.tables.upsert-mode-enabled")
    assert not told.problems
    tabular = review(
        {**BASE, "connector.class": TABULAR, "iceberg.tables.upsert-mode-enabled": "true"}
    )
    assert not changed(tabular, "iceberg.tables.upsert-mode-enabled")


def test_old_key_spellings_are_rewritten_and_ineffective_keys_dropped() -> None:
    told = review(
        {
            **BASE,
            "connector.class": TABULAR,
            "iceberg.control.commitIntervalMs": "60000",
            "iceberg.table.db.orders.idColumns": "id",
            "iceberg.control.group-id-prefix": "cg-",
            "iceberg.tables.partition-by": "days(ts)",
        }
    )
    assert told.config["iceberg.control.commit.interval-ms"] == "60000"
    assert told.config["iceberg.table.db.orders.id-columns"] == "id"
    assert {key for key, _ in told.dropped} == {
        "iceberg.control.group-id-prefix",
        "iceberg.tables.partition-by",
    }
    assert not told.config.keys() & {key for key, _ in told.dropped}
    assert not told.problems


def test_configuration_that_dropped_every_record_in_java_is_refused() -> None:
    told = review({**BASE, "iceberg.tables": ""})
    assert told.problems == ("Must specify table name(s)",)
    assert told.parsed is None


def test_schema_evolution_keys_are_reported_by_their_actual_prefix() -> None:
    told = changed(
        review({**BASE, "iceberg.tables.evolve-schema-enabled": "true"}),
        "iceberg.tables.evolve-schema-enabled",
    )
    (prefix,) = re.findall(r"(iceberg\.ext\.\S+)\*", told)
    assert EVOLVE_ADD.startswith(prefix)


# --- position


def test_migration_continues_at_group_offsets_when_everything_is_committed() -> None:
    traces = [TableTrace("db.orders", control={0: 5})]
    group = {P0: 120, P1: 80}
    position = find_position(
        traces, [written(1), complete(2, 100, 80), written(3), complete(4, 120, 80)], group, group
    )
    assert (position.offsets, position.in_group, position.problems) == (group, True, ())


def test_offsets_of_tabulars_own_group_are_to_be_set() -> None:
    position = find_position([TableTrace("db.orders", control={0: 9})], [], {P0: 120}, {})
    assert (position.offsets, position.in_group) == ({P0: 120}, False)


def test_reported_but_uncommitted_files_are_reread_from_table_position() -> None:
    traces = [TableTrace("db.orders", control={0: 3})]
    events = [
        written(1),
        complete(2, 100, 80),
        written(3),
        complete(4, 120, None),
        complete(6, 130, 90),
    ]
    position = find_position(traces, events, {P0: 130, P1: 90}, {P0: 130, P1: 90})
    assert position.uncommitted == {"db.orders": 1}
    assert position.offsets == {P0: 100, P1: 80}
    assert not position.in_group
    assert not position.problems


def test_table_ahead_of_the_start_position_needs_manual_review() -> None:
    traces = [TableTrace("db.orders", control={0: 3}), TableTrace("db.copies", control={0: 5})]
    events = [complete(2, 100), written(3), written(4, "copies"), complete(5, 120)]
    position = find_position(traces, events, {P0: 120}, {P0: 120})
    assert any("ahead" in problem and "db.copies" in problem for problem in position.problems)


def test_reports_for_an_unexamined_table_need_manual_review() -> None:
    events = [
        complete(1, 100),
        written(2, "routed"),
        complete(3, 200),
        written(4, "routed"),
        complete(5, 300),
    ]
    position = find_position([], events, {P0: 300}, {P0: 300})
    assert any("not checked" in problem and "db.routed" in problem for problem in position.problems)


def test_expired_snapshots_leave_the_committed_control_offset_unknown() -> None:
    events = [complete(1, 100), written(2), complete(3, 200)]
    kept = TableHistory(
        "db.orders", "main", "U", True, {}, [HistoricSnapshot(9, 9, "append", {})], False, {}, 1
    )
    position = find_position(
        [TableTrace.of(kept, KEY, "connect-orders")], events, {P0: 200}, {P0: 200}
    )
    assert any("unknown" in problem and "db.orders" in problem for problem in position.problems)
    found = TableTrace("db.orders", control={0: 4}, complete=False)  # what is left tells it
    assert find_position([found], events, {P0: 200}, {P0: 200}).in_group


def test_a_connector_that_has_begun_here_is_not_taken_back() -> None:
    # the Java sink's last files, which this one read again
    events = [complete(2, 100), written(3), complete(4, 120)]
    traces = [TableTrace("db.orders", control={0: 3}, has_ledger=True), TableTrace("db.copies")]
    position = find_position(traces, events, {P0: 900}, {P0: 900})
    assert (position.offsets, position.in_group) == ({}, True)
    assert any(
        "db.orders" in problem and "nothing is imported" in problem for problem in position.problems
    )


def test_what_the_control_topic_forgot_is_said() -> None:
    position = find_position(
        [TableTrace("db.orders")], [written(7), complete(8, 120)], {P0: 120}, {P0: 120}
    )
    assert any(
        "has no earlier position" in problem and "orders-0" in problem
        for problem in position.problems
    )


def test_newest_java_sink_commit_is_found_below_foreign_snapshots() -> None:
    java = {KEY: '{"0":42}', "kafka.connect.commit-id": "c", "kafka.connect.task-id": "orders-0"}
    snapshots = [
        HistoricSnapshot(3, 3, "replace", {"engine-name": "spark"}),
        HistoricSnapshot(
            2, 2, "append", {**java, "kafka.connect.valid-through-ts": "2026-01-01T00:00:00Z"}
        ),
        HistoricSnapshot(1, 1, "append", {KEY: '{"0":7}'}),
    ]
    history = TableHistory("db.orders", "main", "U", True, {}, snapshots, True, {}, 3)
    trace = TableTrace.of(history, KEY, "connect-orders")
    assert (trace.control, trace.snapshot, trace.by) == ({0: 42}, 2, "orders-0")
    assert trace.valid_through == "2026-01-01T00:00:00Z"
    assert not trace.has_ledger
    assert TableTrace.of(history, "another", "connect-orders").control is None


# --- events


def test_a_tasks_report_is_read_from_its_bytes() -> None:
    value = data_complete("g", {("orders", 0): 12, ("orders", 1): None})
    event = JavaEvent.decode(0, 4, value)
    assert event is not None
    assert (event.kind, event.group, event.read_to) == (DATA_COMPLETE, "g", {("orders", 0): 12})


def test_other_records_on_the_control_topic_are_passed_over() -> None:
    assert JavaEvent.decode(0, 0, None) is None
    assert JavaEvent.decode(0, 0, b"{}") is None
    assert JavaEvent.decode(0, 0, MAGIC + b"\x00\x02{}") is None
    ours = encode_event(
        COMMIT_COMPLETE,
        "g",
        {"commit_id": uuid.uuid4().bytes, "valid_through_ts": None},
        datetime.now(UTC),
    )
    event = JavaEvent.decode(0, 9, ours)
    assert event is not None
    assert (event.kind, event.table) == (COMMIT_COMPLETE, None)


# --- the command, without Kafka


def legacy(
    monkeypatch: pytest.MonkeyPatch,
    events: list[JavaEvent],
    group: dict[TopicPartition, int],
    *tables: TableHistory,
) -> None:
    """What the command finds in Kafka and in the catalog."""
    known = {table.table: table for table in tables}

    def read(_lake: object, name: str, _ref: str) -> TableHistory:
        if name not in known:
            raise TableMissingError(name, "does not exist")
        return known[name]

    monkeypatch.setattr("connectors.iceberg.driver.lake_client.LakeClient", NoJvm)
    monkeypatch.setattr(NoJvm, "history", read, raising=False)
    monkeypatch.setattr(
        "connectors.iceberg_tools.migration.kafka_traces.control_events", lambda *_: events
    )
    monkeypatch.setattr(
        "connectors.iceberg_tools.migration.kafka_traces.group_offsets", lambda *_: group
    )


def history(table: str, *summaries: dict[str, str]) -> TableHistory:
    """Newest first."""
    snapshots = [
        HistoricSnapshot(number, number, "append", summary)
        for number, summary in zip(range(len(summaries), 0, -1), summaries, strict=True)
    ]
    return TableHistory(table, "main", "U", True, {}, snapshots, True, {}, len(snapshots))


ROUTED = {key: value for key, value in BASE.items() if key != "iceberg.tables"} | {
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "to",
}


def test_tables_that_only_events_name_are_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [
        complete(1, 100),
        written(2, "routed"),
        complete(3, 200),
        written(4, "routed"),
        complete(5, 300),
    ]
    legacy(monkeypatch, events, {P0: 300}, history("db.routed", {KEY: '{"0":6}'}))
    status, told = run(tmp_path, dict(ROUTED), "--bootstrap-server", "none:1", "--json")
    found = json.loads(told)
    assert status == 0
    assert [(table["table"], table["uncommitted"]) for table in found["tables"]] == [
        ("db.routed", 0)
    ]
    assert [place["offset"] for place in found["offsets"]] == [{"kafka_offset": 300}]
    assert found["set_offsets"] is False


def run(tmp_path: Path, config: dict[str, str], *options: str) -> tuple[int, str]:
    app = command_app(migrate, parts=fake_parts(services=FakeSharedServices()))
    file = tmp_path / "connector.json"
    file.write_text(json.dumps({"name": config.pop("name", "orders"), "config": config}))
    told = CliRunner().invoke(app, [str(file), *options])
    return told.exit_code, told.output


def test_a_dry_run_prints_the_connector_to_post(tmp_path: Path) -> None:
    status, told = run(tmp_path, {**BASE, "iceberg.tables.autoCreateEnabled": "true"})
    assert status == 0
    posted = json.loads(
        told[told.index("To post:") + len("To post:") : told.index("The position of the Java sink")]
    )
    assert posted["name"] == "orders"
    assert posted["config"]["iceberg.tables.auto-create-enabled"] == "true"


def test_command_reads_kafka_settings_from_options_and_a_properties_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    legacy(monkeypatch, [], {P0: 3})
    asked = []
    monkeypatch.setattr(
        "connectors.iceberg_tools.migration.kafka_traces.control_events",
        lambda settings, *_: asked.append(settings) or [],
    )
    file = tmp_path / "client.properties"
    file.write_text("# ours\nsecurity.protocol = ssl\nclient.id=file\n")
    options = (
        "--bootstrap-server",
        "k:1",
        "--client-config",
        str(file),
        "--kafka-property",
        "client.id=mine=1",
    )
    status, told = run(tmp_path, dict(BASE), *options)
    assert status == 0, told
    assert asked == [
        {"bootstrap.servers": "k:1", "security.protocol": "ssl", "client.id": "mine=1"}
    ]
    status, told = run(
        tmp_path, dict(BASE), "--bootstrap-server", "k:1", "--kafka-property", "nonsense"
    )
    assert (status, told) == (
        2,
        "connect-py: --kafka-property: nonsense is not of the form key=value\n",
    )


def test_machines_get_the_same_as_json(tmp_path: Path) -> None:
    status, told = run(tmp_path, dict(BASE), "--json")
    assert status == 0
    assert json.loads(told)["config"]["name"] == "orders"


@pytest.mark.parametrize(("options", "status"), [((), 1), (("--apply", "http://127.0.0.1:1"), 1)])
def test_what_cannot_be_posted_is_not_ready(
    tmp_path: Path, options: tuple[str, ...], status: int
) -> None:
    found, told = run(
        tmp_path,
        {**BASE, "iceberg.tables": "a", "iceberg.tables.dynamic-enabled": "true"},
        *options,
    )
    assert found == status
    assert "INVALID" in told
    assert "To post:" not in told
    assert "The position of the Java sink was" not in told


def test_applying_needs_to_know_where_the_java_sink_stood(tmp_path: Path) -> None:
    status, told = run(tmp_path, dict(BASE), "--apply", "http://127.0.0.1:1")
    assert status == 2
    assert "--bootstrap-server" in told


LEDGER = {"connect-py.ledger.connect-orders": "{}"}


def test_reapplying_after_the_sink_has_run_sends_no_worker_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def request(*_: object, **__: object) -> None:
        pytest.fail("the worker was asked")

    monkeypatch.setattr("httpx.request", request)
    legacy(
        monkeypatch,
        [complete(2, 100), written(3), complete(4, 120)],
        {P0: 900},
        history("db.orders", LEDGER, {KEY: '{"0":3}'}),
    )
    status, told = run(
        tmp_path, dict(BASE), "--bootstrap-server", "none:1", "--apply", "http://127.0.0.1:1"
    )
    assert status == 2
    assert "CHECK FIRST this sink has already written to db.orders" in told
    assert "Start the Java connector again" not in told


def test_foreign_connector_ledger_in_the_same_table_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = history("db.orders", {"connect-py.ledger.connect-others": "{}"}, {KEY: '{"0":5}'})
    legacy(monkeypatch, [complete(2, 100), written(3), complete(4, 120)], {P0: 120}, table)
    status, told = run(tmp_path, dict(BASE), "--bootstrap-server", "none:1")
    assert status == 0
    assert "no offsets need to be set" in told
