"""`top_frame`: renders one frame of `connect-py top`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from connect_py.terminal.connector_view import ConnectorView
from connect_py.terminal.rest_client import RestClient, WorkerUnreachableError
from connect_py.terminal.task_metrics import Key, TaskMetrics

if TYPE_CHECKING:
    from rich.console import RenderableType

HEADINGS: Final = ("CONNECTOR", "STATE", "REC/S", "LAG", "COMMIT", "DEAD")
NUMBERS: Final = ("REC/S", "LAG", "COMMIT", "DEAD")
NO_VALUE: Final = "-"
Row = tuple[str, str, str, str, str, str]


def top_frame(worker: RestClient, now_seconds: float) -> RenderableType:
    """Return a frame with the states of all connectors and the group's metrics.

    Raises:
        WorkerUnreachableError: The worker does not respond.
        RequestRefusedError: The worker rejects the request.
    """
    from rich.console import Group
    from rich.text import Text

    views = ConnectorView.all_of(worker.connectors())
    workers = sorted({item.worker for view in views for item in view.tasks if item.worker})
    responses, failures = _metrics(worker, workers)
    metrics = TaskMetrics.read(responses, (key for view in views for key in _keys(view)))
    time = datetime.fromtimestamp(now_seconds).strftime("%H:%M:%S")
    head = (
        f"{time}  {worker.url}  connectors: {len(views)}  tasks: "
        f"{sum(len(view.tasks) for view in views)}"
    )
    rows = [row for view in views for row in _rows(view, metrics, now_seconds)]
    remarks = [Text(line, "yellow") for line in (*_remarks(views), *failures)]
    return Group(Text(head, "bold", overflow="ellipsis", no_wrap=True), _grid(rows), *remarks)


def _metrics(worker: RestClient, workers: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the metrics of the workers, and an error message for each unreachable worker."""
    responses, failures = [], []
    for worker_id in workers:
        try:
            responses.append(worker.metrics(worker_id))
        except WorkerUnreachableError as error:
            failures.append(str(error))
    return responses, failures


def _keys(view: ConnectorView) -> list[Key]:
    return [(view.name, task.label.removeprefix("task ")) for task in view.tasks]


def _rows(view: ConnectorView, metrics: TaskMetrics, now_seconds: float) -> Iterator[Row]:
    keys = _keys(view)
    last_commit = metrics.last_commits.get(view.name)
    age = NO_VALUE if last_commit is None else _age(max(0.0, now_seconds - last_commit))
    yield (
        view.name,
        view.connector.state,
        _total(metrics.records_per_second, keys),
        _total(metrics.lag, keys),
        age,
        _total(metrics.dead_letters, keys, missing="0"),
    )
    for key, task in zip(keys, view.tasks, strict=True):
        yield (
            f"  {task.label}",
            task.state,
            _total(metrics.records_per_second, [key]),
            _total(metrics.lag, [key]),
            "",
            _total(metrics.dead_letters, [key], missing="0"),
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


def _total(metric: Mapping[Key, float], keys: Sequence[Key], missing: str = NO_VALUE) -> str:
    values = [metric[key] for key in keys if key in metric]
    return _number(sum(values)) if values else missing


def _number(value: float) -> str:
    """Format a number with at most six characters, for example 950, 12.3k, or 1.2M."""
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
