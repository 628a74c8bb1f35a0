"""Tables that are missing, renamed, dropped and made again while a connector writes: no row is lost
or comes twice."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from bad_input import case, lakehouse, worker
from confluent_kafka.admin import AdminClient
from lakehouse import Lakehouse
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from sink_case import KAFKA_SECONDS, SinkCase

from connectors.iceberg_tools.commands.schema_changes import PendingChange, pending_changes

__all__ = ["case", "lakehouse", "worker"]  # fixtures

pytestmark = pytest.mark.timeout(400)  # a Spark driver starts on a busy machine

COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "to", StringType(), required=False),
)


def ids(lakehouse: Lakehouse, table: str) -> list[Any]:
    return sorted(lakehouse.rows(table).column("id").to_pylist())


def test_rows_for_a_missing_table_are_dead_letters_until_created(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    here, later = f"{case.table}_here", f"{case.table}_later"
    lakehouse.catalog.create_table(here, COLUMNS)
    case.create_topic()
    case.produce(
        {"id": 1, "to": here},
        {"id": 2, "to": later},
        {"id": 3, "to": here.upper()},
        {"id": 4, "to": "..."},
    )
    config = case.config(
        iceberg__tables__dynamic_enabled="true",
        iceberg__tables__route_field="to",
        iceberg__tables__auto_create_enabled="false",
        iceberg__ext__unrouted="dlq",
    )
    del config["iceberg.tables"]
    tolerant = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": case.dead_letters,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    case.worker.put(case.name, {**config, **tolerant})
    case.await_caught_up()
    assert ids(lakehouse, here) == [1, 3]
    letters = case.read_dead_letters(2)
    assert [b'"id": 2' in (m.value() or b"") for m in letters].count(True) == 1
    lakehouse.catalog.create_table(later, COLUMNS)
    case.produce({"id": 5, "to": "nowhere"})  # its cycle looks for missing tables again
    case.await_caught_up()
    case.produce({"id": 6, "to": later}, {"id": 7, "to": here})
    case.await_caught_up()
    assert ids(lakehouse, here) == [1, 3, 7]
    assert ids(lakehouse, later) in ([6], [2, 6])  # rows that are read again are routed again


@pytest.mark.long
def test_renamed_table_keeps_its_rows_while_a_new_one_continues(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    case.create_topic()
    case.produce_ids([1, 2])
    case.start()
    case.await_caught_up()
    renamed = f"{case.table}_old"
    lakehouse.catalog.rename_table(case.table, renamed)
    case.produce_ids([3, 4])
    case.await_caught_up()
    assert ids(lakehouse, renamed) == [1, 2]
    assert case.ids() == [3, 4]
    lakehouse.catalog.drop_table(case.table)
    case.produce_ids([5])
    case.await_caught_up()
    assert case.ids() == [5]


@pytest.mark.long  # in every run: test_rows_for_a_missing_table_are_dead_letters_until_created
def test_dropped_table_is_skipped_while_the_other_tables_continue(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    other = f"{case.table}_other"
    for table in (case.table, other):
        lakehouse.catalog.create_table(table, COLUMNS)
    case.create_topic()
    case.produce_ids([1])
    case.start(
        iceberg__tables=f"{case.table},{other}",
        iceberg__tables__auto_create_enabled="false",
        iceberg__ext__missing_table="skip",
    )
    case.await_caught_up()
    lakehouse.catalog.drop_table(other)
    case.produce_ids([2])
    case.await_caught_up()
    assert case.ids() == [1, 2]
    lakehouse.catalog.create_table(other, COLUMNS)
    case.produce_ids([3])
    case.await_caught_up()
    case.produce_ids([4])
    case.assert_complete([1, 2, 3, 4])
    assert ids(lakehouse, other)[-1:] == [4]
    assert set(ids(lakehouse, other)) <= {2, 3, 4}


def test_rows_wait_for_a_schema_change_that_a_user_approves(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    lakehouse.catalog.create_table(case.table, COLUMNS)
    case.create_topic()
    case.produce({"id": 1})
    case.start(iceberg__ext__evolution__add_column="hold")
    case.await_caught_up()
    case.produce({"id": 2, "new": "x"})
    case.await_log("rows wait until a user allows the sink to add column new of type string")
    held = (
        f'connect_py_iceberg_held_changes{{change="add column new of type '
        f'string",connector="{case.name}"'
    )
    case.worker.wait_until(lambda: held in metrics(case), 30, "the held change among the metrics")
    assert pending_changes(httpx.URL(case.worker.url), case.name) == [
        PendingChange(case.name, case.table, "add column new of type string")
    ]
    listed = subprocess.run(
        [
            Path(sys.executable).parent / "connect-py",
            "schema-changes",
            case.worker.url,
            "--connector",
            case.name,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (listed.returncode, "add column new of type string" in listed.stdout) == (1, True), (
        listed
    )
    assert (
        case.await_waiting(f"table {case.table}")["reason"]
        == "rows wait for approval to add column new of type string"
    )
    assert case.worker.states(case.name) == ["RUNNING", "RUNNING"]
    assert case.ids() == [1]
    table = lakehouse.catalog.load_table(case.table)
    with table.update_schema() as update:
        update.add_column("new", StringType())
    case.assert_complete([1, 2])
    assert lakehouse.rows(case.table).column("new").to_pylist() in ([None, "x"], ["x", None])


@pytest.mark.long
def test_idle_table_that_is_rolled_back_is_logged_and_refilled(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    lakehouse.catalog.create_table(case.table, COLUMNS)
    case.create_topic()
    case.produce_ids([1, 2])
    case.start()
    case.await_caught_up()
    first = lakehouse.catalog.load_table(case.table).current_snapshot()
    assert first is not None
    case.produce_ids([3, 4])
    case.await_caught_up()
    assert case.ids() == [1, 2, 3, 4]
    quiet_since = time.time()
    case.worker.wait_until(
        lambda: (measured(case, "valid_through_seconds") or 0) > quiet_since,
        60,
        "the table to be as new as its topic",
    )
    assert measured(case, "lag_seconds") == 0
    with lakehouse.catalog.load_table(case.table).manage_snapshots() as manage:
        manage.rollback_to_snapshot(first.snapshot_id)
    assert case.ids() == [1, 2]
    case.await_log(f"table {case.table} was rolled back to snapshot {first.snapshot_id}")
    case.worker.wait_until(lambda: case.ids() == [1, 2, 3, 4], 60, "the table to be filled again")


def measured(case: SinkCase, name: str) -> float | None:
    """Return the value of a gauge of the table."""
    lines = [
        line
        for line in metrics(case).splitlines()
        if line.startswith(f"connect_py_iceberg_{name}{{")
    ]
    found = [line.rpartition(" ")[2] for line in lines if f'table="{case.table}"' in line]
    return float(found[0]) if found else None


def metrics(case: SinkCase) -> str:
    """The worker's metrics, labels in the order of their names."""
    lines = httpx.get(f"{case.worker.url}/metrics", timeout=10).text.splitlines()
    shown = []
    for line in lines:
        name, brace, rest = line.partition("{")
        labels, _, value = rest.rpartition("}")
        shown.append(f"{name}{{{','.join(sorted(labels.split(',')))}}}{value}" if brace else line)
    return "\n".join(shown)


@pytest.mark.long
def test_running_connector_survives_the_deletion_of_its_control_topics(case: SinkCase) -> None:
    control = f"{case.name}-control"
    case.create_topic(2)
    case.start(iceberg__control__topic=control, tasks__max="2")
    case.produce_ids([1, 2])
    case.await_caught_up()
    admin = AdminClient({"bootstrap.servers": case.bootstrap_servers})
    topics = [control, f"{control}-connect-{case.name}"]
    for deleted in admin.delete_topics(topics).values():
        deleted.result(KAFKA_SECONDS)
    case.produce_ids(range(3, 50))
    case.assert_complete(range(1, 50))


@pytest.mark.long
def test_table_restored_from_a_backup_is_refilled_from_its_position(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    def restore() -> None:
        lakehouse.catalog.drop_table(case.table)
        lakehouse.catalog.register_table(case.table, backup)

    case.create_topic()
    case.produce_ids([1, 2])
    case.start()
    case.await_caught_up()
    backup = lakehouse.catalog.load_table(case.table).metadata_location
    case.produce_ids([3, 4])
    case.await_caught_up()
    case.stop()
    restore()
    assert case.ids() == [1, 2]
    case.resume()
    case.produce_ids([5])
    case.assert_complete([1, 2, 3, 4, 5])
    restore()  # while it runs
    case.produce_ids([6])
    case.assert_complete([1, 2, 3, 4, 5, 6])
    assert (
        case.worker.log_path.read_text().count(f"{case.table} is older than its last commit") >= 2
    )
