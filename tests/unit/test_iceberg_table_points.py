"""Snapshots by ID, ref, time, and offset, and their writers; without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures.command_line import command_app, command_context
from fixtures.iceberg_history import (
    CYCLE_1,
    CYCLE_2,
    CYCLE_4,
    EXPIRED,
    MINUTE,
    P0,
    WHOLE,
    ledger,
    snapshot,
    table,
)
from typer.testing import CliRunner

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.protocol.positions import TopicPartition
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.commands.diff import diff as diff_command
from connectors.iceberg_tools.commands.history import at as at_command
from connectors.iceberg_tools.commands.history import history as history_command
from connectors.iceberg_tools.commands.table_options import LocalTable
from connectors.iceberg_tools.history.offset_search import (
    OffsetSearchResult,
    find_offset,
    parse_offset,
)
from connectors.iceberg_tools.history.snapshot_entry import entries
from connectors.iceberg_tools.history.table_point import (
    NotInHistoryError,
    find_point,
    parse_time,
    snapshot_at_time,
)

# --- points


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("first", 1),
        ("last", 4),
        ("2", 2),
        ("main", 4),
        ("1970-01-01T00:02:30Z", 2),
        ("1970-01-01T00:03", 3),
        ("1970-01-01T01:02:30+01:00", 2),
        ("19700102", 4),
        ("2100-01-01", 4),
    ],
)
def test_point_names_a_snapshot_ref_time_first_or_last(text: str, number: int) -> None:
    assert find_point(WHOLE, text) == number


@pytest.mark.parametrize(
    ("metadata", "text", "why"),
    [
        (WHOLE, "77", "snapshot 77 does not exist"),
        (EXPIRED, "2", "snapshot 2 was expired"),
        (
            WHOLE,
            "mian",
            "'mian': expected a snapshot ID, a branch or tag of the table (main), a time",
        ),
        (WHOLE, "2026-13-01", "invalid point '2026-13-01'"),
        (
            WHOLE,
            "1970-01-01T00:00:30Z",
            "at or before 1970-01-01T00:00:30.000Z: the remaining history begins at "
            "1970-01-01T00:01:00.000Z",
        ),
        (table(), "last", "the table has no snapshot yet"),
        (table(), "2026-01-01", "the table has no snapshot yet"),
    ],
)
def test_a_point_that_is_not_there_says_why(metadata: TableMetadata, text: str, why: str) -> None:
    with pytest.raises(NotInHistoryError) as raised:
        find_point(metadata, text)
    assert why in str(raised.value)


def test_time_resolves_to_what_readers_saw_before_a_rollback() -> None:
    log = [
        {"timestamp-ms": at * MINUTE, "snapshot-id": number}
        for at, number in ((1, 1), (2, 2), (5, 1))
    ]
    refs = {
        "main": {"snapshot-id": 1, "type": "branch"},
        "audit": {"snapshot-id": 2, "type": "branch"},
    }
    rolled = table(
        snapshot(1, CYCLE_1, None), snapshot(2, CYCLE_2, 1), refs=refs, **{"snapshot-log": log}
    )
    assert [snapshot_at_time(rolled, minutes * MINUTE) for minutes in (1, 3, 6)] == [1, 2, 1]
    assert snapshot_at_time(rolled, 6 * MINUTE, "audit") == 2
    assert [each.id for each in entries(rolled)] == [1]
    assert [(each.id, each.on_ref) for each in entries(rolled, everything=True)] == [
        (2, False),
        (1, True),
    ]


# --- offsets


@pytest.mark.parametrize(("offset", "number"), [(5, 1), (9, 1), (10, 2), (19, 2), (20, 4), (30, 4)])
def test_an_offset_is_in_the_snapshot_whose_commit_brought_it(offset: int, number: int) -> None:
    place = find_offset(WHOLE, P0, offset)
    assert (place.snapshot, place.range is not None and place.range.snapshot, place.note) == (
        number,
        number,
        "",
    )


@pytest.mark.parametrize(
    ("metadata", "partition", "offset", "why"),
    [
        (WHOLE, P0, 4, "orders-0: offset 4 is not in the table, which begins at offset 5"),
        (WHOLE, P0, 31, "offset 31 is not committed: main ends before 31"),
        (EXPIRED, P0, 4, "begins at offset 5"),
        (
            WHOLE,
            TopicPartition("orders", 7),
            4,
            "contains orders-7: the table has ledgers for orders:0, orders:1",
        ),
        (table(snapshot(1, None, None)), P0, 4, "the table was not written by this sink"),
        (table(), P0, 4, "the table was not written by this sink"),
    ],
)
def test_an_offset_that_no_snapshot_holds_says_why(
    metadata: TableMetadata, partition: TopicPartition, offset: int, why: str
) -> None:
    with pytest.raises(NotInHistoryError) as raised:
        find_offset(metadata, partition, offset)
    assert why in str(raised.value)


def test_offset_of_an_expired_snapshot_resolves_to_the_oldest_remaining() -> None:
    place = find_offset(EXPIRED, P0, 12)
    assert (place.snapshot, place.range) == (4, None)
    assert "expired" in place.note
    without = table(snapshot(5, None, 4, operation="replace"), property_of=(CYCLE_4, 4))
    assert find_offset(without, P0, 30) == OffsetSearchResult(5, None)
    with pytest.raises(NotInHistoryError, match="not committed"):
        find_offset(without, P0, 31)


def test_offset_that_was_read_again_lists_all_its_commits() -> None:
    moved = table(
        snapshot(1, CYCLE_1, None),
        snapshot(2, CYCLE_2, 1),
        snapshot(5, ledger(5, {0: (1, 12, 25)}), 2),
        opened=5,
    )
    place = find_offset(moved, P0, 15)
    assert (place.snapshot, [each.snapshot for each in place.again]) == (2, [5])
    assert "read again" in place.note
    created_again = table(
        snapshot(1, CYCLE_1, None), snapshot(2, ledger(2, {0: (0, 0, 9)}, topic="T2"), 1)
    )
    place = find_offset(created_again, P0, 6)
    assert (place.snapshot, [each.snapshot for each in place.again]) == (2, [1])


def test_copied_ledger_of_another_table_does_not_count() -> None:
    copied = table(snapshot(1, ledger(1, {0: (0, 0, 9)}, table="U2"), None))
    with pytest.raises(NotInHistoryError, match="contains orders-0"):
        find_offset(copied, P0, 3)
    assert entries(copied)[0].writer.kind == "other"


@pytest.mark.parametrize("text", ["orders", "orders:1", "orders:x:1", ":0:1", "orders:0:-1"])
def test_an_offset_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_offset(text)


def test_a_topic_may_have_any_name() -> None:
    assert parse_offset("shop.public.a:b:0:12") == (TopicPartition("shop.public.a:b", 0), 12)


# --- entries


def test_entries_say_who_wrote_and_what_came_and_went() -> None:
    metadata = table(
        snapshot(
            1,
            CYCLE_1,
            None,
            added_records="5",
            **{"kafka.connect.valid-through-ts": "1970-01-01T00:00:59.000Z"},
        ),
        snapshot(
            2,
            CYCLE_2,
            1,
            added_records="4",
            added_position_deletes="7",
            removed_position_deletes="4",
            operation="overwrite",
        ),
        snapshot(
            3,
            None,
            2,
            operation="replace",
            added_records="6",
            deleted_records="9",
            engine_name="spark",
            engine_version="4.1.2",
        ),
        snapshot(
            4,
            None,
            3,
            added_records="1",
            deleted_records="2",
            added_equality_deletes="3",
            app_name="nightly",
        ),
        snapshot(5, None, 4, **{"kafka.connect.offsets.control.connect-old": "{}"}),
    )
    newest, foreign, compacted, merged, first = entries(metadata)
    writer = first.writer
    assert (writer.kind, writer.name, writer.commit, writer.task, writer.epoch, writer.cycle) == (
        "connector",
        "connect-orders",
        "c1",
        "orders-0",
        7,
        1,
    )
    assert (first.rows_in, first.rows_out, first.offsets) == (5, 0, {"orders": {0: 10, 1: 5}})
    assert first.valid_through == "1970-01-01T00:00:59.000Z"
    assert (merged.rows_in, merged.rows_out) == (4, 3)
    assert (compacted.rows_in, compacted.rows_out, compacted.engine) == (0, 0, "spark 4.1.2")
    assert (
        foreign.writer.kind,
        foreign.writer.name,
        foreign.rows_out,
        foreign.equality_deletes,
    ) == (
        "other",
        "nightly",
        2,
        3,
    )
    assert (newest.writer.kind, newest.writer.name, newest.refs) == (
        "java-sink",
        "connect-old",
        ("main",),
    )
    assert json.loads(json.dumps(first.to_json()))["source_offsets"] == {
        "orders": {"0": 10, "1": 5}
    }


# --- commands, before Spark starts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["at", "db.t"], "specify one of --time, --offset, --snapshot, and --ref"),
        (["at", "db.t", "--time", "2026-01-01", "--ref", "main"], "specify one of"),
        (["at", "db.t", "--time", "yesterday"], "--time: invalid time 'yesterday'"),
        (["at", "db.t", "--offset", "orders/0/1"], "--offset: invalid offset 'orders/0/1'"),
        (["at", "db.t", "--snapshot", "main"], "--snapshot: invalid snapshot ID 'main'"),
        (["at", "db.t", "--ref", "main"], "no catalog; specify one with --config"),
        (["history", "db.t"], "no catalog; specify one with --config"),
        (["history", "db.t", "--catalog-property", "type"], "type is not of the form key=value"),
        (["diff", "db.t", "first", "last"], "no catalog; specify one with --config"),
        (["diff", "db.t", "first", "last", "--config", "/missing.json"], "/missing.json"),
    ],
)
def test_invalid_command_exits_with_2_and_one_error_line(arguments: list[str], said: str) -> None:
    app = command_app(at_command, history_command, diff_command)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert said in result.stderr.replace(str(Path.cwd()), "")
    assert result.stderr.count("\n") == 1


def test_id_of_a_snapshot_counts_before_a_tag() -> None:
    metadata = table(
        snapshot(1, None, None),
        snapshot(4, None, 1),
        refs={
            "main": {"snapshot-id": 4, "type": "branch"},
            "1": {"snapshot-id": 4, "type": "branch"},
        },
    )
    assert find_point(metadata, "1") == 1


def test_time_before_the_first_year_is_refused() -> None:
    with pytest.raises(ValueError, match="is too early"):
        parse_time("0001-01-01T00:00:00+14:00")


@pytest.mark.parametrize(
    ("branch", "expected"), [("audit", "audit"), ("main", "main"), (None, "main")]
)
def test_branch_is_the_one_typed_or_the_connectors(branch: str | None, expected: str) -> None:
    metadata = table(
        snapshot(1, None, None),
        refs={
            "main": {"snapshot-id": 1, "type": "branch"},
            "audit": {"snapshot-id": 1, "type": "branch"},
        },
    )
    assert (
        LocalTable("shop.orders", SparkConfig("lake", {}), None, command_context()).commit_ref(
            metadata, branch
        )
        == expected
    )


def test_branch_that_is_not_there_means_not_main() -> None:
    with pytest.raises(NotInHistoryError, match="no branch or tag mian"):
        LocalTable("shop.orders", SparkConfig("lake", {}), None, command_context()).commit_ref(
            WHOLE, "mian"
        )
