"""`LiveView`: the terminal output of the quickstart while it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from connect_py.api.record import TopicPartition
from connect_py.api.rest_paths import CONNECTOR_STATUS, path
from connect_py.plurals import pluralize
from connect_py.quickstart.envelope import topic_of
from connect_py.quickstart.feed import Feed
from connect_py.quickstart.shop import KEYS
from connect_py.quickstart.spark_sql import SPARK_SQL
from connect_py.quickstart.tables import CATALOG, NAMESPACE, ShopTables, TableState, catalog_uri

WIDE_COLUMNS = 120


class LiveView:
    """Renders the state of the feed and the tables."""

    def __init__(
        self,
        feed: Feed,
        tables: ShopTables,
        group: str,
        url: str,
        started: float,
        *,
        columns: int = WIDE_COLUMNS,
    ) -> None:
        """Create the view. On a narrow terminal, it omits snapshot IDs and offsets."""
        self._feed = feed
        self._group = group
        self._tables = tables
        self._url = url
        self._started = started
        self._wide = columns >= WIDE_COLUMNS
        self._first_rows: float | None = None

    def caught_up(self) -> bool:
        """Return True if the tables contain all produced changes.

        The group's offsets are committed only after the changes, so they are never ahead of the
        tables.
        """
        committed = self._feed.committed(self._group)
        return all(committed.get(tp, 0) >= end for tp, end in self._feed.ends().items())

    def render(self, *, last: bool = False) -> RenderableType:
        """Return the current view. The `last` view remains visible after the worker has stopped."""
        states = [self._tables.state(table) for table in KEYS]
        if self._first_rows is None and any(state and state.rows for state in states):
            self._first_rows = time.monotonic() - self._started
        changes = pluralize(self._feed.changes, "change")
        head = f"{time.monotonic() - self._started:.0f} s · {changes} produced"
        if self._first_rows is not None:
            head += f" · first rows in a table after {self._first_rows:.1f} s"
        return Group(
            Text(head, style="bold"), self._grid(states), self._how_to_query(worker_runs=not last)
        )

    def _grid(self, states: list[TableState | None]) -> Table:
        committed = self._feed.committed(self._group)
        grid = Table(expand=False, pad_edge=False)
        grid.add_column("table")
        for name in ("rows in the shop", "rows in Iceberg", "seconds behind", "snapshots"):
            grid.add_column(name if self._wide else name.rpartition(" ")[2], justify="right")
        for name in ("last snapshot", "its source offsets") if self._wide else ("last commit",):
            grid.add_column(name)
        for table, state in zip(KEYS, states, strict=True):
            expected = f"{len(self._feed.shop.tables[table]):,}"
            if state is None:
                grid.add_row(f"{NAMESPACE}.{table}", expected, "-", "-", "-", "none yet")
                continue
            age = (datetime.now(UTC) - state.committed_at).total_seconds()
            offsets = ", ".join(
                f"{tp.partition}: {offset}"
                for tp, offset in sorted(state.offsets.items())
                if tp.topic == topic_of(table)
            )
            ago = f"{age:.0f} s ago"
            grid.add_row(
                f"{NAMESPACE}.{table}",
                expected,
                f"{state.rows:,}",
                self._behind(state, table, committed),
                str(state.snapshots),
                *((f"{state.snapshot_id} ({ago})", offsets) if self._wide else (ago,)),
            )
        return grid

    def _behind(
        self, state: TableState, table: str, committed: Mapping[TopicPartition, int]
    ) -> str:
        """Return the age, in seconds, of the oldest change that is not in the table yet.

        Changes without an effect on the table create no snapshot. The group's committed offsets
        show that they were processed.
        """
        write_times = [
            write_time
            for tp in self._feed.ends()
            if tp.topic == topic_of(table)
            and (
                write_time := self._feed.written_at(
                    tp, max(state.offsets.get(tp, 0), committed.get(tp, 0))
                )
            )
            is not None
        ]
        return f"{time.time() - min(write_times):.1f}" if write_times else "0.0"

    def _how_to_query(self, *, worker_runs: bool) -> Panel:
        catalog = self._tables.directory
        text = Text.assemble(
            ("PyIceberg  ", "bold"),
            "from pyiceberg.catalog.sql import SqlCatalog\n"
            f'           uri = "{catalog_uri(catalog)}"\n'
            f'           catalog = SqlCatalog("{CATALOG}", uri=uri)\n'
            f'           catalog.load_table("{NAMESPACE}.orders").scan().to_arrow()\n',
            ("Spark      ", "bold"),
            f"{catalog / SPARK_SQL} \\\n"
            f"             -e 'SELECT status, count(*) FROM {CATALOG}.{NAMESPACE}.orders GROUP "
            f"BY 1'",
        )
        if worker_runs:
            text.append("\nREST       ", "bold").append(
                f"curl {self._url}{path(CONNECTOR_STATUS, connector='shop-sink')}"
            )
            text.append("\nwatch it   ", "bold").append(f"connect-py top --url {self._url}")
            text.append("\nin browser ", "bold").append(f"{self._url}/ui")
        return Panel(text, title="query it", expand=False)
