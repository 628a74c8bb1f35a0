"""Messages to columns run by run, as long as runs are not too short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from connect_py.api.converter import ColumnRun
from connect_py.api.errors import NotColumnar

_FREE_CUTS: Final = 8  # per call


def column_runs(
    rows: int, run_from: Callable[[int], ColumnRun], rows_per_cut: int, what: str
) -> list[ColumnRun]:
    """Convert so many messages; `run_from` makes the run that begins at a message.

    Raises: NotColumnar: Runs have fewer than `rows_per_cut` rows on average: more cuts cost more
        than rows do.
    """
    runs: list[ColumnRun] = []
    start = 0
    while start < rows:
        if len(runs) > _FREE_CUTS + rows // rows_per_cut:
            raise NotColumnar(f"{what} too often")
        runs.append(run_from(start))
        start = runs[-1].stop
    return runs
