"""The sink task between a coordinator of plain messages and a folder: what it reports, and when it must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from iceberg_staging_rows import ORDERS_0
from sink_task_stand import EPOCH, Stand, make_stand

from connect_py.api.errors import ConnectError
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
    with pytest.raises(ConnectError, match="must start again"):
        stand.task.pre_commit({ORDERS_0: 3})  # what the framework still calls before it closes
    assert stand.reports() == []


def test_nothing_is_reported_once_rows_were_staged_for_some_tables_only(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, added = stand.task._stage.add, [0]

    def add_or_fail(rows: Any) -> None:
        added[0] += 1
        if added[0] == 2:
            raise OSError("no space left on device")  # while the table's rows are spilled
        add(rows)

    monkeypatch.setattr(stand.task._stage, "add", add_or_fail)
    with pytest.raises(OSError, match="no space left"):
        stand.put(0, 1, 2)
    stand.reader.waiting.append(StartCommit(EPOCH, 1, {}))
    with pytest.raises(ConnectError, match="must start again"):
        stand.task.pre_commit({})
    assert stand.reports() == []


def test_rows_of_one_partition_that_part_ways_are_staged_whatever_their_order(stand: Stand) -> None:
    stand.poll((0, 2, 4), (1, 3))
    stand.hear(StartCommit(EPOCH, 1, {}))
    [report] = stand.reports()
    assert (report.ranges[ORDERS_0].start, report.ranges[ORDERS_0].next) == (0, 5)
    assert stand.rows(report) == {"db.first": 5, "db.second": 5}


def test_a_cluster_that_does_not_answer_costs_a_cycle_and_no_rows(stand: Stand) -> None:
    stand.put(0, 1, 2)
    stand.context.away = True
    stand.hear(StartCommit(EPOCH, 1, {}))
    assert stand.reports() == []
    stand.context.away = False
    stand.hear(StartCommit(EPOCH, 2, {}))
    [report] = stand.reports()
    assert stand.rows(report) == {"db.first": 3, "db.second": 3}
