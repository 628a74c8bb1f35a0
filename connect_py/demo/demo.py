"""`Demo`: shows changes from PostgreSQL as they arrive in Iceberg, and compares the tables."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from connect_py.api.errors import ConnectError
from connect_py.demo.arrivals import Arrival, Arrivals
from connect_py.demo.change_topics import ChangeTopics
from connect_py.demo.comparison import Comparison, TableComparison
from connect_py.demo.parts import DATABASE, PREFIX, SINK, SOURCE, DemoParts, shown_path
from connect_py.embedded.archives import make_archives_in_background
from connect_py.plurals import pluralize
from connect_py.quickstart.quickstart import clear
from connect_py.quickstart.tables import CATALOG, NAMESPACE, ShopTables, catalog_uri, warehouse_uri

ARRIVE_SECONDS = 150.0  # maximum time from the last change until the tables equal PostgreSQL's
COMMAND_SECONDS = 150.0
LOOK_SECONDS = 0.3
STATUS_SECONDS = 3.0  # interval between checks for failed tasks
COMPARE_SECONDS = 2.0  # interval between comparisons when nothing arrives
ROWS_SHOWN = 3  # maximum number of rows shown per commit
INDENT = 9  # width of the column with the elapsed seconds
WHY_JAVA = (
    "Debezium is written in Java, and connect-py runs connectors written in Python.\n"
    "Therefore, Debezium runs in Java's Kafka Connect. Both use the same Kafka topics."
)


class Demo:
    """One run of the demonstration. Setting `interrupted` ends it early and stops all parts."""

    def __init__(self, directory: Path, seconds: float | None, console: Console) -> None:
        self.directory = directory
        self.folder = shlex.quote(shown_path(directory))
        self.console = console
        self.interrupted = threading.Event()
        self.parts: DemoParts
        self._seconds = seconds
        self._started = time.monotonic()
        self._arrivals: Arrivals
        self._comparison: Comparison
        self._last_status_check = 0.0

    def run(self, story: Callable[[Demo], None] | None = None) -> bool:
        """Run to the end and return True if the tables equal PostgreSQL's.

        `story` is called when all rows have arrived. Without it, users can change rows for
        `seconds`, or until Ctrl-C is pressed.

        Raises:
            ConnectError, PostgresError: A part did not start, a part exited, or a change did not
                arrive.
        """
        clear(self.directory)
        self.console.rule("[bold]connect-py demo: from PostgreSQL to Iceberg")
        self.report(f"All files are stored in {self.folder}")
        parts = DemoParts(self.directory, self.report, self.interrupted)
        with parts:
            self.parts = parts
            if self.interrupted.is_set():
                return False
            self.console.print(f"\n{WHY_JAVA}\n", highlight=False)
            with closing(ChangeTopics(parts.broker.bootstrap_servers, PREFIX)) as topics:
                self._look_at(topics)
                return self._show(story)

    def _look_at(self, topics: ChangeTopics) -> None:
        catalog = SqlCatalog(
            CATALOG, uri=catalog_uri(self.directory), warehouse=warehouse_uri(self.directory)
        )
        self._arrivals = Arrivals(topics, ShopTables(self.directory), catalog)
        self._comparison = Comparison(self.parts.postgres, DATABASE, catalog, NAMESPACE)

    def _show(self, story: Callable[[Demo], None] | None) -> bool:
        for name, worker in ((SOURCE, self.parts.java), (SINK, self.parts.worker)):
            self.command(
                f"connect-py connectors create {self.folder}/{name}.json \\\n  --url {worker.url} "
                f"--wait"
            )
        self.console.print()
        self.wait_until_equal()
        if not self.interrupted.is_set():
            make_archives_in_background()  # reduces the startup time of the next run
            self.verdict()
        if story is not None:
            if not self.interrupted.is_set():
                story(self)
            return not self.interrupted.is_set() and self.verdict()
        if not self.interrupted.is_set():
            self.console.print(self._what_to_try())
        self._watch()
        if self.interrupted.is_set():
            self.console.print("Stopping; tables were not compared.")
            return True
        self.wait_until_equal()
        return self.verdict()

    # --- Output

    def report(self, message: str) -> None:
        """Print a line with the seconds since the start."""
        self.console.print(
            f"[dim]{time.monotonic() - self._started:5.1f} s[/]  "
            f"{escape(self._folded(message).lstrip())}",
            highlight=False,
        )

    def _folded(self, message: str) -> str:
        """Return a message wrapped to the terminal's width and indented past the seconds column."""
        indent = " " * INDENT
        return textwrap.fill(
            message,
            self.console.width - 1,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )

    def show(self, command: str) -> None:
        """Print a shell command."""
        self.console.print(f"[bold]$ {escape(command)}", highlight=False, soft_wrap=True)

    def command(self, command: str) -> str:
        """Print a shell command, run it, and print and return its output.

        Raises:
            ConnectError: The exit status is not 0, or the command timed out.
        """
        self.show(command)
        path = os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        )
        try:
            process = subprocess.run(
                ["/bin/sh", "-c", command],
                env={**os.environ, "PATH": path, "COLUMNS": str(min(self.console.width, 80))},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ConnectError(
                f"timed out after {COMMAND_SECONDS:g} s while running {command}"
            ) from error
        if process.returncode != 0:
            raise ConnectError(
                f"exit status {process.returncode} of {command}\n{process.stdout}{process.stderr}"
            )
        if output := process.stdout.rstrip():
            self.console.print(escape(output), highlight=False, soft_wrap=True)
        return process.stdout

    def verdict(self) -> bool:
        """Compare all tables, print the result, and return True if all are equal."""
        grid = Table(pad_edge=False)
        for name in ("table", "rows in PostgreSQL", "rows in Iceberg", "values"):
            grid.add_column(name, justify="right" if name.startswith("rows") else "left")
        compared = self._comparison.compare()
        for each in compared:
            result = "[bold red]different" if each.differences else "[green]equal"
            grid.add_row(
                f"{NAMESPACE}.{each.table}",
                f"{each.source_rows:,}",
                f"{each.iceberg_rows:,}",
                result,
            )
        self.console.print(grid)
        for each in compared:
            self._print_details(each)
        return not any(each.differences for each in compared)

    def _print_details(self, compared: TableComparison) -> None:
        for difference in compared.differences:
            self.console.print(
                f"[bold red]✗[/] {compared.table}: {escape(difference)}", highlight=False
            )
        if compared.left_out:
            names = ", ".join(compared.left_out)
            self.console.print(f"{compared.table}: not compared, unsupported types: {names}")

    def _print_arrival(self, arrival: Arrival) -> None:
        table, changes = f"{NAMESPACE}.{arrival.table}", arrival.changes
        if all(change.operation == "READ" for change in changes):
            rows = "row from Debezium's snapshot is", "rows from Debezium's snapshot are"
            self.report(f"{table}: {pluralize(len(changes), *rows, grouped=True)} in Iceberg")
            return
        if len(changes) > ROWS_SHOWN:
            delays = [arrival.seconds(change) for change in changes]
            delay = f"{min(delays):.1f} to {max(delays):.1f} s"
            self.report(f"{table}: {len(changes):,} changes are in Iceberg, after {delay}")
            return
        for change in changes:
            key = ", ".join(f"{name}={value}" for name, value in change.key.items())
            self.report(
                f"{change.operation} {table} {key}: in Iceberg after "
                f"{arrival.seconds(change):.1f} s"
            )
            row = self._arrivals.row(arrival.table, change.key)
            content = (
                "no row with this key"
                if row is None
                else " ".join(f"{name}={value}" for name, value in row.items())
            )
            self.console.print(Text(self._folded(content), style="green"))

    def _what_to_try(self) -> Panel:
        folder = self.folder
        uri = f"sqlite:///{shown_path(self.directory)}/catalog.db"
        text = Text.assemble(
            ("change rows\n", "bold"),
            f"{folder}/psql\n",
            f"{folder}/psql -c \"UPDATE customers SET city = 'Faro' WHERE id = 7\"\n",
            ("Spark SQL\n", "bold"),
            f"{folder}/spark-sql -e 'SELECT * FROM {CATALOG}.{NAMESPACE}.customers WHERE id = 7'\n",
            ("PyIceberg\n", "bold"),
            "from pyiceberg.catalog.sql import SqlCatalog\n",
            f'catalog = SqlCatalog("{CATALOG}", uri="{uri}")\n',
            f'catalog.load_table("{NAMESPACE}.customers").scan("id = 7").to_arrow()\n',
            ("watch the workers\n", "bold"),
            f"connect-py top --url {self.parts.worker.url}     # connect-py, with the sink\n",
            f"connect-py status --url {self.parts.java.url}  # Java, with Debezium",
        )
        return Panel(
            text, title="try it in a second terminal; Ctrl-C here stops everything", expand=False
        )

    # --- Waiting

    def wait_until_equal(self) -> None:
        """Show arrivals until every table equals its PostgreSQL table or the run is interrupted.

        Raises:
            ConnectError: The tables were not equal in time, or a part failed.
        """
        deadline = time.monotonic() + ARRIVE_SECONDS
        compared = 0.0
        while not self.interrupted.is_set():
            arrived = self.look()
            if arrived or time.monotonic() - compared > COMPARE_SECONDS:
                different = [each for each in self._comparison.compare() if each.differences]
                compared = time.monotonic()
                if not different:
                    self.look()  # changes that arrived during the comparison
                    return
                if compared > deadline:
                    details = "\n".join(
                        f"{each.table}: {difference}"
                        for each in different
                        for difference in each.differences
                    )
                    raise ConnectError(
                        f"the tables did not equal PostgreSQL's within {ARRIVE_SECONDS:g} "
                        f"s:\n{details}"
                    )
            self.interrupted.wait(LOOK_SECONDS)

    def look(self) -> bool:
        """Print the changes that arrived since the last call, and return True if there are any.

        Raises:
            ConnectError: A worker exited, or a connector failed.
        """
        for process, connector in ((self.parts.java, SOURCE), (self.parts.worker, SINK)):
            process.check()
            if time.monotonic() - self._last_status_check > STATUS_SECONDS and (
                trace := process.failed_trace(connector)
            ):
                raise ConnectError(f"{connector} failed:\n{trace}")
        if time.monotonic() - self._last_status_check > STATUS_SECONDS:
            self._last_status_check = time.monotonic()
        arrived = self._arrivals.new()
        for arrival in arrived:
            self._print_arrival(arrival)
        return bool(arrived)

    def _watch(self) -> None:
        start = time.monotonic()
        while not self.interrupted.is_set():
            if self._seconds is not None and time.monotonic() - start >= self._seconds:
                return
            self.look()
            self.interrupted.wait(LOOK_SECONDS)
