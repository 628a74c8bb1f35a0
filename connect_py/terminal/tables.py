"""Tables for the terminal. Columns fit their contents but do not exceed the terminal's width."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NO_TERMINAL_COLUMNS: Final = 2_000  # a program that reads a pipe expects one line per row
STYLES: Final = {
    "RUNNING": "green",
    "FAILED": "bold red",
    "UNASSIGNED": "yellow",
    "RESTARTING": "yellow",
    "PAUSED": "cyan",
    "STOPPED": "cyan",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
}


def console() -> Console:
    """Return a console for standard output that uses the width of the terminal or COLUMNS."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else NO_TERMINAL_COLUMNS
    return Console(width=width, highlight=False, markup=False, emoji=False)


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the lines of a table. The columns in `right` are right-aligned."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    yield from rendered_lines(table)


def rendered_lines(table: Table) -> Iterator[str]:
    """Yield the lines of a table with the colors that standard output supports."""
    output = console()
    with output.capture() as capture:
        output.print(table)
    yield from capture.get().splitlines()
