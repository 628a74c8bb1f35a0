"""The sink task between a coordinator of plain messages and a folder: when it reports."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from iceberg_staging_rows import ORDERS_0, read, record
from sink_task_stand import EPOCH, Stand, make_stand

from connect_py.api.errors import ConnectError, DataError
from connect_py.api.schema import INT64, Struct, decimal, struct
from connectors.iceberg.protocol.messages import StartCommit
from connectors.iceberg.staging.file_output import FileOutput


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    return make_stand(tmp_path, monkeypatch)


def fail_at(monkeypatch: pytest.MonkeyPatch, file: int) -> None:
    """Let the storage refuse one file, counted from 1."""
    write, written = FileOutput.write, [0]

    def write_or_fail(self: FileOutput, name: str, rows: Any) -> tuple[str, int]:
        written[0] += 1
        if written[0] == file:
            raise OSError("no space left on device")
        return write(self, name, rows)

    monkeypatch.setattr(FileOutput, "write", write_or_fail)


def test_a_report_holds_everything_that_was_put(stand: Stand) -> None:
    stand.put(0, 1, 2)
    stand.hear(StartCommit(EPOCH, 1, {}))
    [report] = stand.reports()
    assert (report.ranges[ORDERS_0].start, report.ranges[ORDERS_0].next) == (0, 3)
    assert stand.rows(report) == {"db.first": 3, "db.second": 3}


def test_nothing_is_reported_once_the_storage_failed_between_two_tables(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.put(0, 1, 2)
    fail_at(monkeypatch, 2)
    with pytest.raises(ConnectError, match="no space left"):
        stand.hear(StartCommit(EPOCH, 1, {}))
    stand.reader.waiting.append(StartCommit(EPOCH, 2, {}))
    with pytest.raises(ConnectError, match="restart the task"):
        stand.task.pre_commit({ORDERS_0: 3})  # what the framework still calls before it closes
    assert stand.reports() == []


def test_partly_staged_rows_fail_the_task_without_any_report(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, added = stand.task._staging.add, [0]

    def add_or_fail(rows: Any) -> None:
        added[0] += 1
        if added[0] == 2:
            raise OSError("no space left on device")  # while the table's rows are spilled
        add(rows)

    monkeypatch.setattr(stand.task._staging, "add", add_or_fail)
    with pytest.raises(OSError, match="no space left"):
        stand.put(0, 1, 2)
    stand.reader.waiting.append(StartCommit(EPOCH, 1, {}))
    with pytest.raises(ConnectError, match="restart the task"):
        stand.task.pre_commit({})
    assert stand.reports() == []


def test_interleaved_batches_of_one_partition_are_staged_completely(stand: Stand) -> None:
    stand.poll((0, 2, 4), (1, 3))
    stand.hear(StartCommit(EPOCH, 1, {}))
    [report] = stand.reports()
    assert (report.ranges[ORDERS_0].start, report.ranges[ORDERS_0].next) == (0, 5)
    assert stand.rows(report) == {"db.first": 5, "db.second": 5}


def test_unreachable_cluster_costs_a_cycle_but_no_rows(stand: Stand) -> None:
    stand.put(0, 1, 2)
    stand.context.away = True
    stand.hear(StartCommit(EPOCH, 1, {}))
    assert stand.reports() == []
    stand.context.away = False
    stand.hear(StartCommit(EPOCH, 2, {}))
    [report] = stand.reports()
    assert stand.rows(report) == {"db.first": 3, "db.second": 3}


WIDE = struct(("n", INT64), ("d", decimal(0, optional=True)))
SHAPELESS = [
    ({"n": 1, "a": [1, "x"]}, None),
    ({"n": 1, "a": [(1 << 53) + 1, 0.5]}, None),
    (Struct(WIDE, [1, Decimal("1" * 40)]), WIDE),
]


@pytest.mark.parametrize(("value", "schema"), SHAPELESS)
def test_unrepresentable_record_is_reported_and_its_neighbours_are_staged(
    stand: Stand, value: Any, schema: Any
) -> None:
    stand.task.put([record({"n": 0}, 0), record(value, 1, schema=schema), record({"n": 2}, 2)])
    stand.task.end_poll({ORDERS_0: 3})
    [(origin, error)] = stand.reporter.reports
    assert origin.offset == 1
    assert isinstance(error, DataError)
    assert str(error).startswith("the record has no columnar form: ")
    stand.hear(StartCommit(EPOCH, 1, {}))
    [report] = stand.reports()
    assert report.ranges[ORDERS_0].next == 3
    assert [row["n"] for row in read(stand.files(report, "db.first"))] == [0, 2]


def test_unrepresentable_record_fails_the_task_without_error_tolerance(stand: Stand) -> None:
    stand.reporter.tolerate = False
    with pytest.raises(ConnectError, match="Tolerance exceeded"):
        stand.task.put([record({"n": 1, "a": [1, "x"]}, 0)])


def test_unrepresentable_record_is_not_reported_again_when_redelivered(stand: Stand) -> None:
    stand.put(0, 1)
    stand.task.put([record({"n": 1, "a": [1, "x"]}, 1)])
    assert stand.reporter.reports == []


ITEM = {
    "type": "struct",
    "fields": [
        {"id": 5, "name": "b", "required": False, "type": "double"},
        {"id": 6, "name": "c", "required": False, "type": "long"},
    ],
}
LIST = {"type": "list", "element-id": 3, "element-required": False, "element": "double"}
ITEMS = {"type": "list", "element-id": 4, "element-required": False, "element": ITEM}


def test_lists_of_mixed_items_are_staged_alike_alone_and_together(stand: Stand) -> None:
    stand.open_table("db.first", [("a", LIST), ("items", ITEMS)])
    rows = [
        {"a": [1, 2.5]},
        {"a": [1]},
        {"items": [{"b": 1}, {"c": 1}]},
        {"items": [{"b": 1}, {}, {"b": 2.5, "c": 3}]},
        {"items": [None, {}]},
    ]
    made = []
    for parts in ([rows], [[row] for row in rows]):
        start = len(made) * len(rows)
        offsets = iter(range(start, start + len(rows)))
        for part in parts:
            stand.task.put([record(row, next(offsets)) for row in part])
        stand.task.end_poll({ORDERS_0: start + len(rows)})
        stand.hear(StartCommit(EPOCH, len(made) + 1, {}))
        made.append(read(stand.files(stand.reports()[-1], "db.first")))
    assert (
        made[0]
        == made[1]
        == [
            {"a": [1.0, 2.5], "items": None},
            {"a": [1.0], "items": None},
            {"a": None, "items": [{"b": 1.0, "c": None}, {"b": None, "c": 1}]},
            {
                "a": None,
                "items": [{"b": 1.0, "c": None}, {"b": None, "c": None}, {"b": 2.5, "c": 3}],
            },
            {"a": None, "items": [None, {"b": None, "c": None}]},
        ]
    )
