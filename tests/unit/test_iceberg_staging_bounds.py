"""How much a task stages before it stops reading."""

from __future__ import annotations

from pathlib import Path

import pytest
from iceberg_staging_rows import ORDERS_0, record
from sink_task_stand import EPOCH, TABLES, Stand, make_stand

from connectors.iceberg.protocol.messages import Release, StartCommit

MEGABYTE = 1 << 20


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    bounds = {
        "iceberg.ext.max-staged-bytes": str(2 * MEGABYTE),
        "iceberg.ext.staging-memory-bytes": str(MEGABYTE),
    }
    made = make_stand(tmp_path, monkeypatch, bounds)
    for name in TABLES:
        made.open_table(name, [("n", "long"), ("note", "string")])
    return made


def fill(stand: Stand, first: int, rows: int) -> None:
    """A kilobyte each, for both tables."""
    stand.task.put(
        [record({"n": offset, "note": "x" * 1024}, offset) for offset in range(first, first + rows)]
    )
    stand.task.end_poll({ORDERS_0: first + rows})


def test_task_with_a_full_stage_pauses_until_its_files_close(stand: Stand) -> None:
    at = 1
    while ORDERS_0 not in stand.context.paused:
        fill(stand, at, 100)
        at += 100
        assert at < 2000
    assert 2 * MEGABYTE <= stand.task._staging.staged_bytes < 3 * MEGABYTE
    assert stand.task._staging._budget.used <= MEGABYTE, "the rest went to disk"
    stand.hear(StartCommit(EPOCH, 1, {ORDERS_0: Release(0, 0)}))
    assert stand.rows(stand.reports()[-1]) == dict.fromkeys(TABLES, at - 1)
    assert stand.task._staging.staged_bytes == 0
    assert ORDERS_0 not in stand.context.paused


def test_a_task_that_lost_what_it_staged_reads_again(stand: Stand) -> None:
    fill(stand, 1, 1100)
    assert ORDERS_0 in stand.context.paused
    stand.task.close([ORDERS_0])
    assert stand.task._staging.staged_bytes == 0
