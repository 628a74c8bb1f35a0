"""`make quickstart`: starts everything, shows it at work, checks it, and stops what it started."""

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
from connect_py.embedded.archives import make_archives_in_background
from connect_py.embedded.broker import BrokerError, KafkaBroker
from connect_py.embedded.connect_process import ConnectProcess, free_port
from connect_py.embedded.ivy import IvyError
from connect_py.embedded.jar_lock import JarLock, JarLockError
from connect_py.embedded.java_runtime import JavaNotFoundError
from connect_py.embedded.spark_environment import spark_environment
from connect_py.quickstart.envelope import topic_of
from connect_py.quickstart.feed import Feed
from connect_py.quickstart.live_view import LiveView
from connect_py.quickstart.shop import KEYS
from connect_py.quickstart.spark_lines import SparkLines
from connect_py.quickstart.spark_sql import write_spark_sql
from connect_py.quickstart.tables import CATALOG, NAMESPACE, ShopTables, warehouse_uri

CATCH_UP_SECONDS = 120.0  # until the tables hold everything, after the last change
REFRESH_SECONDS = 0.5
CONNECTOR = "shop-sink"


class Quickstart:
    """One run. `interrupted` ends it early, in good order."""

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
        """Run to the end; True when the tables equal what was produced.

        Raises:
            ConnectError: Something did not start, or ended by itself.
        """
        console, directory = self._console, self._directory
        clear(directory)
        with ExitStack() as stack:
            console.rule("[bold]connect-py quickstart")
            console.print(f"Everything is kept in {directory}", highlight=False)
            self._step(
                "Java libraries", lambda: (JarLock.shipped("broker").resolve(), spark_environment())
            )
            make_archives_in_background()  # the next start takes half the time
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
            worker.launch()  # it imports its modules while Kafka starts, and waits for Kafka
            stack.callback(worker.close)
            broker.start()
            self._said(f"Apache Kafka answers on {broker.bootstrap_servers}")
            feed = Feed(broker.bootstrap_servers, self._rate)
            feed.create_topics()
            feed.start()
            stack.callback(feed.stop)
            self._said(
                f"{len(KEYS)} topics are being fed with about {self._rate:g} changes per second"
            )
            url = worker.url
            worker.wait_until_it_answers(self.interrupted)
            self._said(f"the worker answers on {url}")
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
                console.print()  # without a terminal, the last view ends without a line break
            if self.interrupted.is_set():
                console.print("Stopping; tables were not compared.")
                return True
            return self._verdict(tables, feed)

    # --- start

    def _step(self, what: str, action: Callable[[], Any]) -> None:
        action()
        self._said(f"{what}: there")

    def _said(self, text: str) -> None:
        self._console.print(
            f"[dim]{time.monotonic() - self._started:5.1f} s[/]  {text}", highlight=False
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
        command.append(f"{url}/connectors")
        console.print(f"[bold]$ {shlex.join(command)}", highlight=False, soft_wrap=True)
        if shutil.which("curl"):
            answer = subprocess.run(
                command, capture_output=True, text=True, timeout=100, check=False
            )
            text = answer.stdout or answer.stderr
        else:
            text = httpx.post(
                f"{url}/connectors", json=json.loads(path.read_text()), timeout=100
            ).text
        if '"error_code"' in text or '"name"' not in text:
            raise ConnectError(f"the worker refused the connector: {text}")
        console.print(f"[green]{text[:79]}…", highlight=False)
        console.print()

    # --- run

    def _watch(self, live: Live, view: LiveView, worker: ConnectProcess) -> None:
        while not self.interrupted.is_set():
            if self._seconds is not None and time.monotonic() - self._started >= self._seconds:
                return
            self._look(live, view, worker)

    def _look(self, live: Live, view: LiveView, worker: ConnectProcess) -> None:
        worker.check()
        for line in self._spark.new():
            self._said(line)
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
            f"[bold green]✓[/] {feed.changes} changes made {rows} rows, and the tables hold "
            f"exactly these.\n"
            "Next: `connect-py doctor worker.properties` checks what a worker of your own\n"
            "needs, and `connect-py worker worker.properties` runs it.",
            highlight=False,
        )
        return True


def connector_config(directory: Path) -> Mapping[str, str]:
    """The connector, as it would be posted to a Java worker but for the keys below
    `iceberg.ext`."""
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
    """Begin with an empty folder, but touch only one that an earlier run made."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / "worker.properties").exists():
            raise ConnectError(f"{directory} holds something else; name an empty folder with --dir")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (
        directory / "worker.properties"
    ).touch()  # so that the next run may clear what a failed start leaves


def main(directory: Path, seconds: float | None, changes_per_second: float) -> int:
    """Run the quickstart; the exit status is 0 only when the tables equal what was produced."""
    console = Console()
    quickstart = Quickstart(directory.resolve(), seconds, changes_per_second, console)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: quickstart.interrupted.set())
    try:
        return 0 if quickstart.run() else 1
    except (ConnectError, BrokerError, JavaNotFoundError, JarLockError, IvyError) as error:
        console.print("[bold red]quickstart failed:[/]", str(error), highlight=False)
        return 1
