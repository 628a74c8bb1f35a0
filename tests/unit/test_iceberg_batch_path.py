"""The classes that a batch passes through, from `put_batch` to the staged file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
import sink_task_stand
from iceberg_staging_rows import ORDERS_0, batch, record, table
from sink_task_stand import EPOCH, make_stand

from connect_py.api.batch import Batch, Column
from connectors.iceberg.protocol.messages import StartCommit
from connectors.iceberg.staging.features import StagingFeature
from connectors.iceberg.task.features import TaskFeature

ROOT = Path(__file__).parents[2]
LIMIT = 10
ROWS = (Batch, Column, pa.Array, pa.ChunkedArray, pa.Table)
# The partial rows of a table in MERGE mode are the only feature that is used by default.
PLAIN_MERGE = {
    "iceberg.tables.upsert-mode-enabled": "true",
    "iceberg.tables.default-id-columns": "n",
    "iceberg.ext.unavailable-value": "",
}


def contains_rows(value: Any, depth: int = 3) -> bool:
    """Return True if a value is a batch, a column, or Arrow data, or contains some."""
    if isinstance(value, ROWS):
        return True
    if not depth:
        return False
    if isinstance(value, dict):
        return any(contains_rows(item, depth - 1) for item in value.values())
    if isinstance(value, list | tuple):
        return any(contains_rows(item, depth - 1) for item in value)
    return is_dataclass(value) and any(
        contains_rows(getattr(value, field.name, None), depth - 1) for field in fields(value)
    )


@contextmanager
def followed_classes() -> Iterator[list[type]]:
    """Collect the classes of `connectors.iceberg` with methods that receive rows, in order."""
    classes: dict[type, None] = {}

    def follow(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or "/connectors/iceberg/" not in code.co_filename:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        is_method = names[:1] == ("self",)
        if is_method and any(contains_rows(frame.f_locals[name]) for name in names[1:]):
            classes.setdefault(type(frame.f_locals["self"]))

    followed: list[type] = []
    sys.setprofile(follow)
    try:
        yield followed
    finally:
        sys.setprofile(None)
        followed += classes


def documented_classes() -> list[str]:
    """Return the classes in the table of docs/architecture.md."""
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.split("## The path of a batch")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


@pytest.mark.parametrize("props", [{}, PLAIN_MERGE], ids=["append", "merge"])
def test_batch_passes_through_the_documented_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, props: dict[str, str]
) -> None:
    keys = ("n",) if props else ()
    monkeypatch.setattr(
        sink_task_stand, "table", lambda *args, **options: table(*args, **options, keys=keys)
    )
    stand = make_stand(tmp_path, monkeypatch, props)
    stand.put(0, 1)  # compiles the conversion
    with followed_classes() as classes:
        stand.task.put_batch(batch([record({"n": 2}, 2), record({"n": 3}, 3)]))
        stand.task.end_poll({ORDERS_0: 4})
        stand.hear(StartCommit(EPOCH, 1, {}))
    [report] = stand.reports()
    assert stand.rows(report) == {"db.first": 4, "db.second": 4}
    assert len(classes) <= LIMIT
    assert not any(issubclass(each, StagingFeature | TaskFeature) for each in classes)
    names = [each.__name__ for each in classes]
    assert [name.replace("AppendConverter", "ChangeConverter") for name in names] == (
        documented_classes()
    )


def test_table_in_merge_mode_uses_features_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    props = {**PLAIN_MERGE, "iceberg.ext.unavailable-value": "missing"}
    monkeypatch.setattr(
        sink_task_stand, "table", lambda *args, **options: table(*args, **options, keys=("n",))
    )
    stand = make_stand(tmp_path, monkeypatch, props)
    with followed_classes() as classes:
        stand.task.put_batch(batch([record({"n": 1}, 1)]))
    features = {each.__name__ for each in classes if issubclass(each, StagingFeature | TaskFeature)}
    assert features >= {"PartialRows", "ChangedKeys"}
