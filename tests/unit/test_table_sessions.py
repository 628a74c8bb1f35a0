"""Selection of the worker for a table operation of a command, and the request to the worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fixtures.command_line import command_context

from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connectors.iceberg.operation_request import registered_operations
from connectors.iceberg.protocol.positions import TopicPartition
from connectors.iceberg_tools.audit.table_audit import AuditReport, Finding, GroupAudit, Segment
from connectors.iceberg_tools.commands.table_options import LocalTable, TableOptions
from connectors.iceberg_tools.commands.table_session import TableSession, table_session
from connectors.iceberg_tools.history.state_columns import ColumnChanges
from connectors.iceberg_tools.history.table_diff import DiffRequest, RowChange, TableDiff
from connectors.iceberg_tools.operations.audit import AUDIT
from connectors.iceberg_tools.operations.diff import DIFF
from connectors.iceberg_tools.operations.history import HISTORY, HistoryArguments, TableSnapshots
from connectors.iceberg_tools.operations.maintain import MAINTAIN, Maintenance
from connectors.iceberg_tools.operations.rewind import (
    PREVIEW_REWIND,
    REWIND,
    RewindPreview,
    RewoundTables,
)
from connectors.iceberg_tools.operations.table_operation import TableOperation

SINK = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "db.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog",
}
SNAPSHOTS = {"ref": "main", "count": 0, "snapshots": []}
RUNS = {
    "tasks": [
        {"id": 1, "state": "RUNNING", "worker_id": "b:1"},
        {"id": 0, "state": "RUNNING", "worker_id": "a:1"},
    ]
}


@dataclass
class FakeWorker:
    """A worker that answers each operation with the same result."""

    sinks: Mapping[str, Mapping[str, str]]
    answer: Any = field(default_factory=lambda: dict(SNAPSHOTS))
    error: ConnectError | None = None
    status: Mapping[str, Any] = field(default_factory=lambda: RUNS)
    url: str = "http://worker"
    calls: list[tuple[str, str, Mapping[str, Any], str | None]] = field(default_factory=list)

    def connectors(self) -> Mapping[str, Any]:
        if self.error is not None:
            raise self.error
        return {
            name: {"info": {"config": {"name": name, **config}}, "status": self.status}
            for name, config in self.sinks.items()
        }

    def operate(
        self,
        name: str,
        operation: str,
        arguments: Mapping[str, Any],
        progress: Callable[[str], None],
        worker_id: str | None = None,
    ) -> Any:
        self.calls.append((name, operation, arguments, worker_id))
        if isinstance(self.answer, Exception):
            raise self.answer
        return json.loads(json.dumps(self.answer))


class SeparateDriverError(Exception):
    """A driver would start."""


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_place: LocalTable, _seconds: float) -> None:
        raise SeparateDriverError

    monkeypatch.setattr(LocalTable, "open", refuse)


@pytest.fixture
def posted(tmp_path: Path) -> Path:
    file = tmp_path / "sink.json"
    file.write_text(json.dumps({"name": "sink", "config": SINK}))
    return file


@contextmanager
def session_at(
    worker: FakeWorker | None,
    config: Path | None,
    *properties: str,
    catalog: str = "iceberg",
    timeout: int = 120,
) -> Iterator[TableSession]:
    context = command_context()
    context.worker = lambda: worker  # type: ignore[method-assign]
    options = TableOptions("db.orders", config, None, list(properties) or None, catalog)
    with table_session(context, options, timeout) as session:
        yield session


def list_snapshots(session: TableSession) -> TableSnapshots:
    return session.run(HISTORY, HistoryArguments(table="db.orders", limit=3))


def test_worker_of_task_0_runs_the_operation_of_a_connector(posted: Path) -> None:
    worker = FakeWorker({"sink": SINK, "other": SINK})
    with session_at(worker, posted, timeout=7) as session:
        assert list_snapshots(session) == TableSnapshots("main", 0, [])
    arguments = {
        "table": "db.orders",
        "use_connector": True,
        "timeout_seconds": 7,
        "branch": None,
        "limit": 3,
        "everything": False,
    }
    assert worker.calls == [("sink", "history", arguments, "a:1")]


def test_stopped_connector_has_no_worker_of_its_own(posted: Path) -> None:
    worker = FakeWorker({"sink": SINK}, status={"tasks": []})
    with session_at(worker, posted) as session:
        list_snapshots(session)
    assert worker.calls[0][3] is None


def test_catalog_without_a_connector_is_that_of_a_running_sink() -> None:
    worker = FakeWorker(
        {"b": SINK, "a": {**SINK, "iceberg.catalog.uri": "http://x"}, "c": {**SINK, "topics": "x"}}
    )
    with session_at(worker, None, "type=rest", "uri=http://catalog") as session:
        list_snapshots(session)
    [(name, _, arguments, _)] = worker.calls
    assert (name, arguments["use_connector"]) == ("b", False)


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        (
            FakeWorker({}, error=ConnectError("no worker responds at http://x")),
            "no worker responds at http://x",
        ),
        (FakeWorker({"other": SINK}), "the worker at http://worker has no Iceberg sink sink"),
        (FakeWorker({"sink": {"connector.class": "FileStreamSink"}}), "has no Iceberg sink sink"),
        (
            FakeWorker(
                {
                    "sink": {
                        **SINK,
                        "iceberg.catalog.uri": "http://y",
                        "iceberg.ext.write-mode": "append",
                    }
                }
            ),
            "connector sink at http://worker has different values for iceberg.catalog.uri, "
            "iceberg.ext.write-mode",
        ),
        (
            FakeWorker({"sink": SINK}, answer=NotFoundError("has no operation history")),
            "has no operation history",
        ),
    ],
)
def test_separate_driver_is_announced_in_one_line(
    posted: Path, worker: FakeWorker, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SeparateDriverError), session_at(worker, posted) as session:
        list_snapshots(session)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("connect-py: starting a separate Spark driver: ")
    assert reason in line


@pytest.mark.parametrize("named", [("type=rest", "uri=http://other"), ("type=rest",)])
def test_catalog_that_no_sink_uses_needs_a_separate_driver(
    named: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(SeparateDriverError),
        session_at(FakeWorker({"sink": SINK}), None, *named) as session,
    ):
        list_snapshots(session)
    assert "runs no connector with this catalog" in capsys.readouterr().err


def test_catalog_property_that_differs_from_the_connector_needs_a_separate_driver(
    posted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(SeparateDriverError),
        session_at(FakeWorker({"sink": SINK}), posted, "uri=http://y") as session,
    ):
        list_snapshots(session)
    assert "has different values for iceberg.catalog.uri" in capsys.readouterr().err


def test_operation_that_failed_is_not_repeated_in_another_driver(posted: Path) -> None:
    worker = FakeWorker({"sink": SINK}, answer=ConnectError("the catalog does not answer"))
    with (
        pytest.raises(ConnectError, match="the catalog does not answer"),
        session_at(worker, posted) as session,
    ):
        list_snapshots(session)


def test_result_of_another_version_is_an_error(posted: Path) -> None:
    with (
        pytest.raises(
            ConnectError, match=r"unexpected result for history: .*missing required field"
        ),
        session_at(FakeWorker({"sink": SINK}, answer={"ref": "main"}), posted) as session,
    ):
        list_snapshots(session)


def test_options_are_refused_before_a_worker_is_contacted(tmp_path: Path) -> None:
    worker = FakeWorker({"sink": SINK})
    (tmp_path / "broken.json").write_text("{")
    with (
        pytest.raises(ConfigError, match=r"broken\.json"),
        session_at(worker, tmp_path / "broken.json"),
    ):
        pass
    with (
        pytest.raises(ConfigError, match="no catalog"),
        session_at(worker, None) as session,
    ):
        list_snapshots(session)
    assert worker.calls == []


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        (
            DIFF,
            TableDiff(
                DiffRequest(2**62 + 1, 2, ("id",)),
                {RowChange.SEVERAL_ROWS: 1, RowChange.UPDATED: 2},
                ColumnChanges((), (), (("a", "b"),), ()),
                [{"key": {"id": 1}, "before": None}],
                "SELECT",
            ),
        ),
        (
            AUDIT,
            AuditReport(
                "t",
                "main",
                "u",
                1,
                2,
                [
                    GroupAudit(
                        "g",
                        1,
                        [Segment(TopicPartition("orders", 0), "id", 0, 0, 10)],
                        [],
                        [Finding("kind", "text", 7)],
                    )
                ],
            ),
        ),
        (REWIND, RewoundTables({"db.orders": 2**62 + 1})),
        (PREVIEW_REWIND, RewindPreview("g", [], ["db.other"], [], [])),
    ],
)
def test_results_survive_json(operation: TableOperation[Any, Any], result: Any) -> None:
    import msgspec

    encoded = json.loads(json.dumps(msgspec.to_builtins(result, str_keys=True)))
    assert operation.decode(encoded) == result


def test_types_of_all_operations_can_be_encoded_and_decoded() -> None:
    import msgspec

    operations = [entry.load() for entry in registered_operations().values()]
    tables = [each for each in operations if isinstance(each, TableOperation)]
    assert {each.name for each in tables} == {
        name
        for name, entry in registered_operations().items()
        if isinstance(entry.load(), TableOperation)
    }
    assert len(tables) == 14
    for each in tables:
        msgspec.json.schema(each.arguments)
        msgspec.json.Decoder(each.result)
    assert (MAINTAIN.result, MAINTAIN.name) == (Maintenance, "maintain")
