"""`top_frame`: one frame of `connect-py top`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from connect_py.terminal.connector_view import ConnectorView
from connect_py.terminal.figures import Figures, Key
from connect_py.terminal.rest_client import RestClient, WorkerUnreachableError

if TYPE_CHECKING:
    from rich.console import RenderableType

HEADINGS: Final = ("CONNECTOR", "STATE", "REC/S", "LAG", "COMMIT", "DEAD")
NUMBERS: Final = ("REC/S", "LAG", "COMMIT", "DEAD")
NOT_KNOWN: Final = "-"
Row = tuple[str, str, str, str, str, str]


def top_frame(worker: RestClient, now_seconds: float) -> RenderableType:
    """Ask the worker, and all workers of its group for their metrics; draw the answers.

    Raises:
        WorkerUnreachableError: The worker does not answer.
        RequestRefusedError: It refuses.
    """
    from rich.console import Group
    from rich.text import Text

    views = ConnectorView.all_of(worker.connectors())
    workers = sorted({item.worker for view in views for item in view.tasks if item.worker})
    texts, silent = _metrics(worker, workers)
    figures = Figures.read(texts, (key for view in views for key in _keys(view)))
    time = datetime.fromtimestamp(now_seconds).strftime("%H:%M:%S")
    head = (
        f"{time}  {worker.url}  connectors: {len(views)}  tasks: "
        f"{sum(len(view.tasks) for view in views)}"
    )
    rows = [row for view in views for row in _rows(view, figures, now_seconds)]
    remarks = [Text(line, "yellow") for line in (*_remarks(views), *silent)]
    return Group(Text(head, "bold", overflow="ellipsis", no_wrap=True), _grid(rows), *remarks)


def _metrics(worker: RestClient, workers: Sequence[str]) -> tuple[list[str], list[str]]:
    """The metrics of each worker, and a line for each that does not answer."""
    texts, silent = [], []
    for worker_id in workers:
        try:
            texts.append(worker.metrics(worker_id))
        except WorkerUnreachableError as error:
            silent.append(str(error))
    return texts, silent


def _keys(view: ConnectorView) -> list[Key]:
    return [(view.name, task.what.removeprefix("task ")) for task in view.tasks]


def _rows(view: ConnectorView, figures: Figures, now_seconds: float) -> Iterator[Row]:
    keys = _keys(view)
    committed = figures.last_commits.get(view.name)
    age = NOT_KNOWN if committed is None else _age(max(0.0, now_seconds - committed))
    yield (
        view.name,
        view.connector.state,
        _total(figures.records_per_second, keys),
        _total(figures.lag, keys),
        age,
        _total(figures.dead_letters, keys, missing="0"),
    )
    for key, task in zip(keys, view.tasks, strict=True):
        yield (
            f"  {task.what}",
            task.state,
            _total(figures.records_per_second, [key]),
            _total(figures.lag, [key]),
            "",
            _total(figures.dead_letters, [key], missing="0"),
        )


def _remarks(views: Iterable[ConnectorView]) -> Iterator[str]:
    for view in views:
        if view.remark():
            yield f"{view.name}, {view.remark()}"


def _grid(rows: Iterable[Row]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from connect_py.terminal.tables import STYLES

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    for heading in HEADINGS:
        grid.add_column(
            heading,
            justify="right" if heading in NUMBERS else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if heading == HEADINGS[0] else None,
            min_width=6 if heading in NUMBERS else None,
        )
    for row in rows:
        grid.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    return grid


def _total(found: Mapping[Key, float], keys: Sequence[Key], missing: str = NOT_KNOWN) -> str:
    values = [found[key] for key in keys if key in found]
    return _number(sum(values)) if values else missing


def _number(value: float) -> str:
    """At most six characters: 950, 12.3k, 1.2M."""
    if value < 10:
        return f"{value:.1f}".removesuffix(".0")
    for limit, divisor, unit in ((10_000, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if value < limit:
            return f"{value / divisor:.0f}" if divisor == 1 else f"{value / divisor:.1f}{unit}"
    return f"{value / 1e9:.1f}G"


def _age(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"
