"""Concurrent commits between any two steps of a commit: its results are validated, or computed
again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from fixtures.iceberg_commit import BY_REGION, ENGINES, Lake, Sink, lake, order
from short_form import short_form

from connectors.iceberg.commit import engine
from connectors.iceberg.commit.engine import AFTER_MERGE, AFTER_ROWS, BEFORE_SWAP
from connectors.iceberg.protocol.commit_request import CommitStatus, EngineName
from connectors.iceberg.table.table import StagedKind

__all__ = ["lake"]

STEPS = (AFTER_ROWS, AFTER_MERGE, BEFORE_SWAP)
OFTEN = [
    *(pytest.param(each, marks=pytest.mark.long) for each in (AFTER_ROWS, AFTER_MERGE)),
    BEFORE_SWAP,
]
VERSIONS = [pytest.param(2, marks=pytest.mark.long), 3]
COPY_ON_WRITE = {"write.merge.mode": "copy-on-write"}
BY_PARTITION = {"write.delete.granularity": "partition"}  # as of tables that the sink makes
EXPIRE = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
Table = dict[str, str | None]  # region by number


def between(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], object]) -> None:
    """Let `act` happen once, when a commit comes by this step for the first time."""
    acts = [act]

    def point(name: str) -> None:
        if name == step and acts:
            acts.pop()()

    monkeypatch.setattr(engine, "fault_point", point)


def rows(numbers: Mapping[str, str | None]) -> list[dict[str, object]]:
    return [order(1, number, region) for number, region in numbers.items()]


def table_of(sink: Sink) -> Table:
    found = [dict(row) for row in sink.rows("number, region")]
    assert len({row["number"] for row in found}) == len(found), "a key has several rows"
    return {row["number"]: row.get("region") for row in found}


def seeded(
    lake: Lake, version: int, spec: str | None, properties: Mapping[str, str]
) -> tuple[Sink, Table]:
    """A table of several files, some of which have deletes."""
    sink = lake.make(version=version, spec=spec, **properties)
    sink.commit(sink.stage(rows(dict.fromkeys("abcd", "north"))))
    sink.commit(sink.stage(rows({"d": "south", "e": "south", "f": "north"})))
    return sink, {
        "a": "north",
        "b": "north",
        "c": "north",
        "d": "south",
        "e": "south",
        "f": "north",
    }


def no_file_is_missing(sink: Sink) -> None:
    """Check that every file of every snapshot exists."""
    for name, column in (
        ("all_files", "file_path"),
        ("snapshots", "manifest_list"),
        ("all_manifests", "path"),
    ):
        for row in sink.lake.rows(f"{sink.name}.{name}", column):
            path = str(dict(row)[column])
            assert Path(path.removeprefix("file:").replace("///", "/")).exists(), path


def insert(sink: Sink, table: Table) -> None:
    sink.lake.sql(
        f"INSERT INTO lake.{sink.name} (shop, number, region) VALUES (2, 'foreign', 'north')"
    )
    table["foreign"] = "north"


def delete(sink: Sink, table: Table) -> None:
    sink.lake.sql(f"DELETE FROM lake.{sink.name} WHERE number = 'c'")
    del table["c"]


def compact(sink: Sink, _table: Table) -> None:
    options = "options => map('rewrite-all', 'true')"
    sink.lake.sql(f"CALL lake.system.rewrite_data_files(table => '{sink.name}', {options})")


def rewrite_manifests(sink: Sink, _table: Table) -> None:
    sink.lake.sql(f"CALL lake.system.rewrite_manifests('{sink.name}')")


def expire(sink: Sink, _table: Table) -> None:
    sink.lake.sql(f"CALL lake.system.expire_snapshots(table => '{sink.name}', {EXPIRE})")


def set_property(sink: Sink, _table: Table) -> None:
    sink.lake.sql(f"ALTER TABLE lake.{sink.name} SET TBLPROPERTIES ('made.by' = 'somebody')")


FOREIGN = (insert, delete, compact, rewrite_manifests, expire, set_property)
CASES = [
    (2, None, BY_PARTITION),
    (3, BY_REGION, {}),
    (2, None, {}),
    (2, BY_REGION, {}),
    (3, None, {}),
    *((version, None, COPY_ON_WRITE) for version in (1, 2, 3)),
]
# Every pair of a table, a foreign change and a step, not every combination of all three.
PAIRS = [
    (*case, act, STEPS[(a - b) % 3])
    for a, case in enumerate(CASES)
    for b, act in enumerate(FOREIGN)
]
IN_SHORT = [(*CASES[1], compact, BEFORE_SWAP)]


@pytest.mark.parametrize(
    ("version", "spec", "properties", "act", "step"), short_form(PAIRS, IN_SHORT)
)
def test_concurrent_changes_between_steps_are_kept_and_commit_is_exact(
    lake: Lake,
    version: int,
    spec: str | None,
    properties: dict[str, str],
    act: Callable[[Sink, Table], None],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink, table = seeded(lake, version, spec, properties)
    files = sink.stage(rows({"a": "south", "d": "north", "g": None}))
    files += sink.stage([{"shop": 1, "number": number} for number in "bf"], StagedKind.DELETES)
    with monkeypatch.context() as patch:
        between(patch, step, lambda: act(sink, table))
        sink.commit(files)
    table |= {"a": "south", "d": "north", "g": None}
    del table["b"], table["f"]
    assert table_of(sink) == table
    no_file_is_missing(sink)
    sink.commit(sink.stage(rows({"a": "north"})))  # sweeps
    table["a"] = "north"
    expire(sink, table)
    assert table_of(sink) == table
    no_file_is_missing(sink)
    assert [dict(row)["name"] for row in lake.rows(f"{sink.name}.refs", "name")] == ["main"]


def rival_append(sink: Sink) -> Table:
    sink.commit(sink.stage(rows({"rival": "north"})))
    return {"rival": "north"}


def rival_upsert(sink: Sink) -> Table:
    sink.commit(sink.stage(rows({"a": "rival", "e": "rival"})))
    return {"a": "rival", "e": "rival"}


def rival_claim(sink: Sink) -> Table:
    sink.commit([])
    return {}


RIVALS = (rival_append, rival_upsert, rival_claim)
OVERTAKEN = short_form(list(itertools.product(STEPS, RIVALS)), [(STEPS[-1], rival_upsert)])


@pytest.mark.parametrize(("step", "act"), OVERTAKEN)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", VERSIONS)
def test_coordinator_that_another_one_overtakes_between_two_steps_commits_nothing(
    lake: Lake,
    version: int,
    engine: EngineName,
    act: Callable[[Sink], Table],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink, table = seeded(lake, version, None, {})
    files = sink.stage(rows({"a": "zombie", "d": "zombie", "zombie": None}))
    request = sink.request(files + sink.stage([{"shop": 1, "number": "b"}], StagedKind.DELETES))
    with monkeypatch.context() as patch:
        between(patch, step, lambda: table.update(act(sink)))
        assert sink.committer(engine).commit(request).status is CommitStatus.CONFLICT
    assert table_of(sink) == table
    no_file_is_missing(sink)
    sink.commit(sink.stage(rows({"a": "after"})), engine)
    table["a"] = "after"
    expire(sink, table)
    assert table_of(sink) == table
    no_file_is_missing(sink)
    assert [dict(row)["name"] for row in lake.rows(f"{sink.name}.refs", "name")] == ["main"]


@pytest.mark.parametrize("step", OFTEN)
@pytest.mark.parametrize("act", short_form([compact, expire, insert], [compact]))
def test_concurrent_changes_while_completing_rows_leave_no_stale_values(
    lake: Lake, act: Callable[[Sink, Table], None], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, table = seeded(lake, 3, BY_REGION, {})
    patches = sink.stage([order(1, "e", amount=None)], StagedKind.CHANGES, ["region"])
    with monkeypatch.context() as patch:
        between(patch, step, lambda: act(sink, table))
        sink.commit(patches + sink.stage(rows({"a": None})))
    table["a"] = None
    assert table_of(sink) == table
    no_file_is_missing(sink)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("step", short_form(STEPS, STEPS[2:]))
@pytest.mark.parametrize("version", VERSIONS)
def test_next_commit_completes_and_cleans_up_a_crashed_one(
    lake: Lake, version: int, step: str, engine: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DiedError(BaseException):
        """Simulates a killed process: nothing is cleaned up."""

    def die() -> None:
        raise DiedError

    sink, table = seeded(lake, version, None, {})
    request = sink.request(sink.stage(rows({"a": "south", "g": None})))
    with monkeypatch.context() as patch:
        between(patch, step, die)
        with pytest.raises(DiedError):
            sink.committer(engine).commit(request)
    assert table_of(sink) == table
    expire(sink, table)
    assert sink.committer(engine).commit(request).status is CommitStatus.COMMITTED
    assert table_of(sink) == table | {"a": "south", "g": None}
    assert [dict(row)["name"] for row in lake.rows(f"{sink.name}.refs", "name")] == ["main"]
    expire(sink, table)
    assert table_of(sink) == table | {"a": "south", "g": None}
    no_file_is_missing(sink)
