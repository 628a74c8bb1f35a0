"""Tables for people: columns as wide as their texts, and no wider than the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NO_TERMINAL_COLUMNS: Final = 2_000  # what reads a pipe wants a row on one line
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
    """Standard output; as wide as the terminal, or as COLUMNS says."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else NO_TERMINAL_COLUMNS
    return Console(width=width, highlight=False, markup=False, emoji=False)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()
) -> Table:
    """Texts in columns below their headings; those in `right` stand at the right edge of their
    column."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    return made


def show(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table."""
    console().print(table(headings, rows, right))
