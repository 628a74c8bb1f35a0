"""The work of a small commit, counted in calls, statements, and jobs: figures that no load of the
machine changes."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import py4j.java_gateway
import pytest
from fixtures.iceberg_commit import Lake, lake, order

from connectors.iceberg.protocol.commit_request import EngineName
from connectors.iceberg.table.table import StagedKind

__all__ = ["lake"]

ROOT = Path(__file__).parents[2]
MOST_PY4J_CALLS = 250
MOST_FUNCTIONS = 30
WARM_COMMITS = 2


@contextmanager
def py4j_calls(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the commands that are sent to the JVM within the block, by their kind.

    The garbage collector decides when py4j releases the Java objects of earlier commits and tests,
    with one command each: only objects that were created within the block count.
    """
    calls: Counter[str] = Counter()
    send = py4j.java_gateway.GatewayClient.send_command
    # py4j numbers objects in the order of their creation: o0, o1, ...
    newest = int(lake.catalog.spark._jvm.java.lang.Object()._target_id.removeprefix("o"))

    def counted(client: Any, command: str, *arguments: Any, **options: Any) -> Any:
        released = re.match(r"m\nd\no(\d+)\n", command)
        if released is None or int(released[1]) > newest:
            calls[command.split("\n", 2)[0]] += 1
        return send(client, command, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(py4j.java_gateway.GatewayClient, "send_command", counted)
        yield calls


def jobs_so_far(lake: Lake) -> int:
    return int(lake.catalog.spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


@pytest.mark.parametrize("version", [2, 3])
def test_plain_small_commit_makes_few_calls_one_statement_and_two_jobs(
    lake: Lake, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, engine = plain_commit(lake, version), lake.catalog.engine
    statements: list[str] = []
    run = type(lake.catalog.spark).sql

    def recorded(spark: Any, statement: str, *arguments: Any, **options: Any) -> Any:
        statements.append(statement)
        return run(spark, statement, *arguments, **options)

    jobs = jobs_so_far(lake)
    with monkeypatch.context() as patch, py4j_calls(lake, monkeypatch) as calls:
        patch.setattr(type(lake.catalog.spark), "sql", recorded)
        outcome = engine.commit(request)
    assert (outcome.engine, outcome.counts.replaced_rows) == (EngineName.MERGE, 2)
    assert len(statements) == 1
    assert statements[0].startswith("MERGE INTO connect_py_recorded.")
    assert jobs_so_far(lake) - jobs <= 2
    assert calls.total() <= MOST_PY4J_CALLS, calls


def plain_commit(lake: Lake, version: int) -> Any:
    """Return a request that replaces one row, deletes another one, and inserts a third one, in a
    table with earlier commits."""
    sink = lake.make(version=version)
    sink.commit(sink.stage([order(1, number) for number in "abcdef"]))
    for _ in range(WARM_COMMITS):  # classes and members are resolved once
        sink.commit(sink.stage([order(1, "a")]))
    files = sink.stage([order(1, "b", "south"), order(1, "new")])
    files += sink.stage([{"shop": 1, "number": "c"}], StagedKind.DELETES)
    return sink.request(files)


@contextmanager
def called_functions(package: str) -> Iterator[dict[str, int]]:
    """Count the calls of each function of a package within the block, in the order of their first
    call."""
    folder, calls = f"{ROOT / package}/", Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(folder) and "<" not in code.co_name:
            calls[code.co_qualname] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def documented_functions() -> list[str]:
    """Return the functions that docs/architecture.md lists for a plain commit."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    (table,) = re.findall(r"<!-- functions of a plain commit -->\n\n(.*?)\n\n", text, re.DOTALL)
    cells = [line.split("|")[1] for line in table.splitlines()]
    return re.findall(r"`([\w.]+)`", "".join(cells))


def test_plain_commit_follows_the_documented_path(lake: Lake) -> None:
    request = plain_commit(lake, version=3)
    with called_functions("connectors/iceberg/commit") as calls:
        outcome = lake.catalog.engine.commit(request)
    assert (outcome.engine, outcome.counts.replaced_rows) == (EngineName.MERGE, 2)
    assert [*calls] == documented_functions()
    assert len(calls) <= MOST_FUNCTIONS


def test_plain_commit_loads_the_metadata_twice(lake: Lake) -> None:
    request = plain_commit(lake, version=3)
    with called_functions("connectors/iceberg/catalog") as calls:
        lake.catalog.engine.commit(request)
    assert (calls["JavaCatalog.load"], calls["TableUpdate.__init__"]) == (1, 1)
    assert "JavaTable.refresh" not in calls
    assert "JavaTable.has_changed" not in calls


def test_commits_leave_no_allocators_of_readers_behind(lake: Lake) -> None:
    request = plain_commit(lake, version=3)
    root = lake.catalog.engine._catalog.java.iceberg("arrow.ArrowAllocation").rootAllocator()
    lake.catalog.engine.commit(request)
    assert root.getChildAllocators().size() == 0
