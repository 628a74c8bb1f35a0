"""`make quickstart`: starts all parts, shows a live view, and verifies the tables."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.live import Live

from connect_py.api.errors import ConnectError
from connect_py.api.rest_paths import CONNECTORS
from connect_py.embedded.archives import make_archives_in_background
from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.connect_process import ConnectProcess, free_port
from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.spark_environment import spark_environment
from connect_py.quickstart.envelope import topic_of
from connect_py.quickstart.feed import Feed
from connect_py.quickstart.live_view import LiveView
from connect_py.quickstart.shop import KEYS
from connect_py.quickstart.spark_lines import SparkLines
from connect_py.quickstart.spark_sql import write_spark_sql
from connect_py.quickstart.tables import CATALOG, NAMESPACE, ShopTables, warehouse_uri

CATCH_UP_SECONDS = 120.0  # maximum time from the last change until the tables contain all changes
REFRESH_SECONDS = 0.5
CONNECTOR = "shop-sink"


class Quickstart:
    """One run of the quickstart. Setting `interrupted` ends it early and stops all parts."""

    def __init__(
        self, directory: Path, seconds: float | None, changes_per_second: float, console: Console
    ) -> None:
        self._directory = directory
        self._seconds = seconds
        self._rate = changes_per_second
        self._console = console
        self._started = time.monotonic()
        self._spark = SparkLines(directory / "worker.log")
        self.interrupted = threading.Event()

    def run(self) -> bool:
        """Run to the end and return True if the tables equal the shop's data.

        Raises:
            ConnectError: A part did not start, or a part exited.
        """
        console, directory = self._console, self._directory
        clear(directory)
        with ExitStack() as stack:
            console.rule("[bold]connect-py quickstart")
            console.print(f"All files are stored in {directory}", highlight=False)
            self._step(
                "Java libraries", lambda: (JarLock.shipped("broker").resolve(), spark_environment())
            )
            make_archives_in_background()  # halves the startup time of the next run
            broker = KafkaBroker(directory / "kafka", port=free_port())
            stack.callback(broker.close)
            connector = self._write_connector()
            worker = ConnectProcess(
                directory,
                "worker",
                "quickstart",
                broker.bootstrap_servers,
                {"connect_py.services.connectors": str(connector)},
            )
            worker.launch()  # imports its modules while Kafka starts, and waits for Kafka
            stack.callback(worker.close)
            broker.start()
            self._report(f"Apache Kafka is running on {broker.bootstrap_servers}")
            feed = Feed(broker.bootstrap_servers, self._rate)
            feed.create_topics()
            feed.start()
            stack.callback(feed.stop)
            self._report(
                f"producing changes to {len(KEYS)} topics, about {self._rate:g} per second"
            )
            url = worker.url
            worker.wait_until_it_answers(self.interrupted)
            self._report(f"the worker is running on {url}")
            self._post(url, connector)
            tables = ShopTables(directory)
            write_spark_sql(directory)
            view = LiveView(
                feed, tables, f"connect-{CONNECTOR}", url, self._started, columns=console.width
            )
            with Live(
                view.render(), console=console, refresh_per_second=4, transient=False
            ) as live:
                self._watch(live, view, worker)
                if not self.interrupted.is_set():
                    feed.stop()
                    self._catch_up(live, view, worker)
                live.update(view.render(last=True))
            if not console.is_terminal:
                console.print()  # without a terminal, the last view does not end with a line break
            if self.interrupted.is_set():
                console.print("Stopping; tables were not compared.")
                return True
            return self._verdict(tables, feed)

    # --- Start

    def _step(self, component: str, action: Callable[[], Any]) -> None:
        action()
        self._report(f"{component}: available")

    def _report(self, message: str) -> None:
        self._console.print(
            f"[dim]{time.monotonic() - self._started:5.1f} s[/]  {message}", highlight=False
        )

    def _write_connector(self) -> Path:
        path = self._directory / f"{CONNECTOR}.json"
        path.write_text(
            json.dumps({"name": CONNECTOR, "config": connector_config(self._directory)}, indent=2)
            + "\n"
        )
        return path

    def _post(self, url: str, path: Path) -> None:
        console = self._console
        console.print()
        console.print_json(path.read_text())
        command = [
            "curl",
            "-sS",
            "-X",
            "POST",
            "-H",
            "Content-Type: application/json",
            "-d",
            f"@{path}",
        ]
        command.append(url + CONNECTORS)
        console.print(f"[bold]$ {shlex.join(command)}", highlight=False, soft_wrap=True)
        if shutil.which("curl"):
            process = subprocess.run(
                command, capture_output=True, text=True, timeout=100, check=False
            )
            response = process.stdout or process.stderr
        else:
            response = httpx.post(
                url + CONNECTORS, json=json.loads(path.read_text()), timeout=100
            ).text
        if '"error_code"' in response or '"name"' not in response:
            raise ConnectError(f"the worker refused the connector: {response}")
        console.print(f"[green]{response[:79]}…", highlight=False)
        console.print()

    # --- Run

    def _watch(self, live: Live, view: LiveView, worker: ConnectProcess) -> None:
        while not self.interrupted.is_set():
            if self._seconds is not None and time.monotonic() - self._started >= self._seconds:
                return
            self._look(live, view, worker)

    def _look(self, live: Live, view: LiveView, worker: ConnectProcess) -> None:
        worker.check()
        for line in self._spark.new():
            self._report(line)
        live.update(view.render())
        failure = worker.failed_trace(CONNECTOR)
        if failure is not None:
            raise ConnectError(f"the connector failed:\n{failure}")
        self.interrupted.wait(REFRESH_SECONDS)

    def _catch_up(self, live: Live, view: LiveView, worker: ConnectProcess) -> None:
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while not view.caught_up() and not self.interrupted.is_set():
            if time.monotonic() > deadline:
                raise ConnectError(f"the tables did not catch up within {CATCH_UP_SECONDS:g} s")
            self._look(live, view, worker)

    def _verdict(self, tables: ShopTables, feed: Feed) -> bool:
        differences = tables.differences(feed.shop)
        rows = sum(len(rows) for rows in feed.shop.tables.values())
        if differences:
            for difference in differences:
                self._console.print(f"[bold red]✗[/] {difference}", highlight=False)
            return False
        self._console.print(
            f"[bold green]✓[/] {feed.changes} changes resulted in {rows} rows, and the tables "
            f"contain exactly these rows.\n"
            "Next: `connect-py doctor worker.properties` checks the requirements of your own\n"
            "worker, and `connect-py worker worker.properties` runs it.",
            highlight=False,
        )
        return True


def connector_config(directory: Path) -> Mapping[str, str]:
    """Return the connector configuration. Java workers ignore the keys `iceberg.ext.*`."""
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",
        "topics": ",".join(topic_of(table) for table in KEYS),
        "key.converter": json_converter,
        "value.converter": json_converter,
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": "tombstone",
        "iceberg.catalog": CATALOG,
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.uri": f"jdbc:sqlite:{directory / 'catalog.db'}",
        "iceberg.catalog.jdbc.schema-version": "V1",
        "iceberg.catalog.warehouse": warehouse_uri(directory),
        "iceberg.ext.topic-to-table": f"shop\\.public\\.(.*):{NAMESPACE}.{{1}}",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": "id",
        f"iceberg.table.{NAMESPACE}.order_lines.id-columns": ",".join(KEYS["order_lines"]),
        "iceberg.control.commit.interval-ms": "2000",
    }


def clear(directory: Path) -> None:
    """Empty a directory, but only if it was created by an earlier run.

    Raises:
        ConnectError: The directory contains other files.
    """
    if directory.exists() and any(directory.iterdir()):
        if not (directory / "worker.properties").exists():
            raise ConnectError(
                f"{directory} contains other files; specify an empty directory with --dir"
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    # marks the directory in case the start fails before the worker's properties are written
    (directory / "worker.properties").touch()


def main(directory: Path, seconds: float | None, changes_per_second: float) -> int:
    """Run the quickstart and return its exit status, 0 if the tables equal the shop's data."""
    console = Console()
    quickstart = Quickstart(directory.resolve(), seconds, changes_per_second, console)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: quickstart.interrupted.set())
    try:
        return 0 if quickstart.run() else 1
    except ConnectError as error:
        console.print("[bold red]quickstart failed:[/]", str(error), highlight=False)
        return 1
