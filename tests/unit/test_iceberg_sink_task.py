"""The sink task between a coordinator of plain messages and a folder: what it reports, and when it must not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from iceberg_staging_rows import BASE, ORDERS_0, record, table

from connect_py.api.errors import ConnectError
from connect_py.testing import FakeSinkTaskContext
from connectors.iceberg import sink_task
from connectors.iceberg.protocol.messages import (
    Attach,
    Attached,
    Attachment,
    EpochStarted,
    Message,
    OpenTable,
    Report,
    StartCommit,
    TableOpened,
)
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.sink_task import IcebergSinkTask
from connectors.iceberg.staging.file_output import FileOutput

EPOCH = Epoch(7, "a1b2")
TABLES = ("db.first", "db.second")


class FakeReader:
    """Messages of the coordinator, handed out once."""

    def __init__(self, *_: Any) -> None:
        self.waiting: list[Message] = []

    def start_at_end(self) -> None:
        pass

    def poll(self) -> list[Message]:
        polled, self.waiting = self.waiting, []
        return polled

    def close(self) -> None:
        pass


class FakeWriter:
    """Messages to the coordinator, kept."""

    def __init__(self, *_: Any) -> None:
        self.sent: list[Message] = []

    def send(self, messages: Iterable[Message]) -> None:
        self.sent += messages

    def poll(self) -> None:
        pass

    def close(self) -> None:
        pass


class Stand:
    """A task with one attached partition and two open tables, which get every row."""

    def __init__(self, folder: Path) -> None:
        self.context = FakeSinkTaskContext(connector="orders-sink", task=1, topics={"orders": 1})
        self.task = IcebergSinkTask()
        self.task.initialize(self.context)
        self.task.start(BASE | {"iceberg.tables": ",".join(TABLES)})
        self.reader: FakeReader = self.task._reader  # type: ignore[assignment]
        self.writer: FakeWriter = self.task._writer  # type: ignore[assignment]
        self.task.open(self.context.assign(ORDERS_0))
        self.hear(EpochStarted(EPOCH))
        attach = self.last(Attach)
        self.hear(Attached(EPOCH, attach.nonce, {ORDERS_0: Attachment("id-of-orders", 0, 0, 0, 0, {})}))
        for name in TABLES:
            self.put(0)
            assert self.last(OpenTable).table == name
            (folder / name).mkdir(exist_ok=True)
            answer = json.dumps(table([("n", "long")], folder=folder / name).to_json())
            self.hear(TableOpened(EPOCH, name, "u", {ORDERS_0: 0}, answer))

    def hear(self, *messages: Message) -> None:
        self.reader.waiting += messages
        self.task.put([])

    def put(self, *offsets: int) -> None:
        """One poll."""
        self.poll(offsets)

    def poll(self, *parts: Iterable[int]) -> None:
        """One poll whose rows parted ways, as rows of one partition do that a transformation sends to many topics."""
        consumed = [offset for part in parts for offset in part]
        for part in parts:
            self.task.put([record({"n": offset}, offset) for offset in part])
        self.task.end_poll({ORDERS_0: max(consumed) + 1})

    def last(self, kind: type[Any]) -> Any:
        return [message for message in self.writer.sent if isinstance(message, kind)][-1]

    def reports(self) -> list[Report]:
        return [message for message in self.writer.sent if isinstance(message, Report)]

    def rows(self, report: Report) -> dict[str, int]:
        """Rows of the report's files by table."""
        parts = report.ranges[ORDERS_0].tables
        return {name: sum(file.rows for file in part.files) for name, part in parts.items()}


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    monkeypatch.setattr(sink_task, "create_channel", lambda *_: None)
    monkeypatch.setattr(sink_task, "ChannelReader", FakeReader)
    monkeypatch.setattr(sink_task, "ChannelWriter", FakeWriter)
    return Stand(tmp_path)


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
