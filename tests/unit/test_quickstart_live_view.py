"""The live view of the quickstart, and its directory."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from connect_py.quickstart.live_view import LiveView
from connect_py.quickstart.shop import KEYS
from connect_py.quickstart.tables import ShopTables, TableState


def test_last_view_shows_no_command_for_the_ended_worker(tmp_path: Path) -> None:
    feed: Any = SimpleNamespace(
        changes=0,
        committed=lambda _: {},
        ends=dict,
        shop=SimpleNamespace(tables=dict.fromkeys(KEYS, ())),
    )
    tables: Any = SimpleNamespace(directory=tmp_path, state=lambda _: None)
    view = LiveView(feed, tables, "connect-shop-sink", "http://127.0.0.1:1", 0.0)
    output = io.StringIO()
    console = Console(file=output, width=200)
    console.print(view.render())
    assert "curl http://127.0.0.1:1/connectors/shop-sink/status" in output.getvalue()
    output.truncate(0)
    console.print(view.render(last=True))
    assert "curl" not in output.getvalue()
    assert "PyIceberg" in output.getvalue()


def test_the_view_fits_a_terminal_of_eighty_columns() -> None:
    feed: Any = SimpleNamespace(
        changes=7387,
        committed=lambda _: {},
        ends=dict,
        shop=SimpleNamespace(tables={table: range(1_234_567) for table in KEYS}),
    )
    state = TableState("orders", 1_234_567, 1234, 1234567890123456789, datetime.now(UTC), {})
    tables: Any = SimpleNamespace(
        directory=Path("/srv/shop/quickstart-data"), state=lambda _: state
    )
    view = LiveView(feed, tables, "connect-shop-sink", "http://127.0.0.1:41031", 0.0, columns=80)
    output = io.StringIO()
    Console(file=output, width=80).print(view.render())
    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in output.getvalue()
    assert sum("1,234,567" in line and "0 s ago" in line for line in lines) == len(KEYS)
    assert any('uri = "sqlite:////srv/shop/quickstart-data/catalog.db"' in line for line in lines)


@pytest.mark.parametrize("name", ["x%20y", "x y", "x?y#z"])
def test_a_folder_of_any_name_holds_the_catalog(name: str, tmp_path: Path) -> None:
    directory = tmp_path / name
    directory.mkdir()
    assert ShopTables(directory).state("orders") is None
    assert (directory / "catalog.db").exists()
