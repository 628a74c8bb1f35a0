"""Alerts about Iceberg sinks and their Spark drivers, on a real Prometheus: each fires by its
cause, and then ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from command_lines import command_line
from http_sink import http_sink
from lakehouse import Lakehouse
from lakehouse_places import lakehouse_at
from prometheus_server import Prometheus, prometheus
from sink_case import SinkCase
from worker_process import WorkerProcess, free_port

from connect_py.embedded.broker import KafkaBroker

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]
SECONDS = 90.0
ALLOWED = {"connect_py.spark.user-code.allowed": "iceberg.ext.expect.*"}


class Rows:
    """Writes ten rows ten times per second to one topic of a case, or to several."""

    def __init__(self, *cases: SinkCase) -> None:
        self._cases = cases
        self.produced = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="rows", daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._ended.wait(0.1):
            for case in self._cases:
                case.produce_ids(range(self.produced, self.produced + 10))
            self.produced += 10

    def end(self) -> None:
        self._ended.set()
        self._thread.join(30)


class Sinks:
    """A worker, and the Prometheus that scrapes it."""

    def __init__(
        self, worker: WorkerProcess, server: Prometheus, servers: str, prefix: str, lake: Lakehouse
    ) -> None:
        self.worker = worker
        self.prometheus = server
        self.lake = lake
        self._servers = servers
        self._prefix = prefix

    def case(self, name: str, extra: Mapping[str, str] | None = None) -> SinkCase:
        """A connector with its topic; not started."""
        return SinkCase(
            self.worker, self.lake, self._servers, f"{self._prefix}{name}", extra or {}
        ).create_topic()

    def drivers(self) -> list[psutil.Process]:
        """The JVMs of Spark."""
        return [
            each for each in self.worker.processes() if "py4j.GatewayServer" in command_line(each)
        ]


@contextmanager
def sinks(
    folder: Path, broker: KafkaBroker, prefix: str, lake: Lakehouse, environment: Mapping[str, str]
) -> Iterator[Sinks]:
    worker = WorkerProcess(
        folder / "worker", broker.bootstrap_servers, f"{prefix}w", ALLOWED, environment
    )
    with prometheus(folder / "prometheus", [worker.url.removeprefix("http://")]) as server:
        try:
            yield Sinks(worker.start(), server, broker.bootstrap_servers, prefix, lake)
        except AssertionError:
            print(worker.log_end(80))
            raise
        finally:
            worker.close()


@pytest.fixture
def java(tmp_path: Path, spark_environment: dict[str, str]) -> Path:
    """A link to Java, which a test may take away."""
    link = tmp_path / "java"
    link.symlink_to(spark_environment["CONNECT_PY_JAVA"])
    return link


@pytest.fixture
def local(
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    spark_environment: dict[str, str],
    java: Path,
) -> Iterator[Sinks]:
    environment = {**spark_environment, "CONNECT_PY_JAVA": str(java)}
    with sinks(
        tmp_path, kafka_broker, topic_prefix, Lakehouse(tmp_path / "lake"), environment
    ) as made:
        yield made


def test_alerts_about_an_outage_fire_until_the_catalog_answers(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> None:
    with ExitStack() as stack:
        lake = stack.enter_context(lakehouse_at("rest-file", tmp_path / "lake", None))
        made = stack.enter_context(
            sinks(tmp_path, kafka_broker, topic_prefix, lake, spark_environment)
        )
        server, rest = made.prometheus, lake.rest
        assert rest is not None
        case, other = made.case("orders"), made.case("begins")
        for each in (case, other):
            each.produce_ids([0])
            each.start()
            each.await_caught_up()
        rows = Rows(case, other)
        stack.callback(rows.end)
        made.worker.wait_until(lambda: len(case.ids()) > 50, SECONDS, "rows to flow")
        rest.go_away()
        httpx.post(
            f"{made.worker.url}/connectors/{other.name}/restart?includeTasks=true", timeout=100
        )
        server.await_firing("ConnectPyRowsWait", SECONDS, connector=case.name)
        server.await_firing("ConnectPyWaiting", SECONDS, connector=other.name)
        server.await_firing("ConnectPyCommitsFail", SECONDS, connector=case.name)
        server.await_firing("ConnectPyTableStale", SECONDS, severity="warning", table=case.table)
        server.await_firing("ConnectPyTableStale", SECONDS, severity="critical", table=case.table)
        server.await_firing("ConnectPyCoordinatorRestarts", SECONDS, connector=other.name)
        # The rows of a refused commit are read again; therefore only the task without a coordinator
        # is idle.
        server.await_firing(
            "ConnectPyConsumerLagGrowing", SECONDS, client_id=f"connector-consumer-{other.name}-0"
        )
        rest.come_back()
        for alert in (
            "ConnectPyRowsWait",
            "ConnectPyWaiting",
            "ConnectPyTableStale",
            "ConnectPyConsumerLagGrowing",
        ):
            server.await_end(alert, SECONDS)
        for alert in ("ConnectPyCommitsFail", "ConnectPyCoordinatorRestarts"):  # after their window
            server.await_end(alert, 180)
        rows.end()
        for each in (case, other):
            each.assert_complete([0, *range(rows.produced)])


def test_alerts_about_decisions_fire_until_a_user_decides(local: Sinks) -> None:
    server = local.prometheus
    port = free_port()
    changes = local.case("changes", {"iceberg.ext.evolution.add-column": "hold"})
    gate = local.case("gate", {"iceberg.ext.expect.paid": "amount >= 0"})
    notices = local.case(
        "notices",
        {
            "iceberg.ext.evolution.add-column": "apply",
            "iceberg.ext.notices.webhook": f"http://127.0.0.1:{port}/",
        },
    )
    routes = {"iceberg.tables.route-field": "kind", "iceberg.ext.unrouted": "ignore"}
    unrouted = local.case("unrouted", routes)
    unrouted.extra = {**routes, f"iceberg.table.{unrouted.table}.route-regex": "known"}
    cases = (changes, gate, notices, unrouted)
    for case in cases:
        case.produce({"id": 1, "amount": 1, "kind": "known"})
        case.start()
    for case in cases:
        case.await_caught_up()
    for case in cases:
        case.produce({"id": 2, "amount": -1, "kind": "unknown", "new": "x"})
    server.await_firing(
        "ConnectPyChangeOnHold", SECONDS, connector=changes.name, table=changes.table
    )
    server.await_firing(
        "ConnectPyCommitsUnpublished", SECONDS, connector=gate.name, table=gate.table
    )
    server.await_firing("ConnectPyUnexpectedRows", SECONDS, connector=gate.name, expectation="paid")
    server.await_firing(
        "ConnectPyRowsUnrouted", SECONDS, connector=unrouted.name, topic=unrouted.name
    )
    server.await_firing("ConnectPyNoticesFail", SECONDS, connector=notices.name, outcome="failed")
    changes.extra = {"iceberg.ext.evolution.add-column": "apply"}
    changes.start()
    url = f"{local.worker.url}/connectors/{gate.name}/operations/publish"
    assert httpx.post(url, json={"table": gate.table}, timeout=120).status_code == 200
    with http_sink(port):
        notices.produce({"id": 3, "amount": 1, "kind": "known", "newer": "y"})
        for alert in (
            "ConnectPyChangeOnHold",
            "ConnectPyCommitsUnpublished",
            "ConnectPyUnexpectedRows",
            "ConnectPyRowsUnrouted",
            "ConnectPyNoticesFail",
        ):
            server.await_end(alert, SECONDS)
    changes.assert_complete([1, 2])
    gate.assert_complete([1, 2])


def test_alert_about_maintenance_fires_until_a_file_is_back(local: Sinks) -> None:
    policy = {"enabled": "true", "interval": "2s", "small-files": "4"}
    case = local.case(
        "maintained", {f"iceberg.ext.maintenance.{key}": value for key, value in policy.items()}
    )
    case.start()
    for number in range(3):  # three files: not enough for a compaction
        case.produce_ids([number])
        case.await_caught_up()
    table = local.lake.table(case.table)
    assert table is not None
    file = Path(next(iter(table.scan().plan_files())).file.file_path.removeprefix("file://"))
    aside = file.with_suffix(".aside")
    file.rename(aside)
    for number in range(3, 6):
        case.produce_ids([number])
        case.await_caught_up()
    local.prometheus.await_firing(
        "ConnectPyMaintenanceFails", 120, connector=case.name, table=case.table
    )
    aside.rename(file)
    case.produce_ids([6])  # maintenance looks at a table again that changed
    local.prometheus.await_end("ConnectPyMaintenanceFails", 120)
    local.worker.wait_until(
        lambda: len(list(local.lake.catalog.load_table(case.table).scan().plan_files())) < 4,
        120,
        "the compaction",
    )
    case.assert_complete(range(7))


def test_alerts_about_spark_drivers_fire_and_end(local: Sinks, java: Path) -> None:
    server, case = local.prometheus, local.case("driven")
    case.start()
    case.produce_ids([-1])
    case.await_caught_up()
    rows = Rows(case)
    try:
        # more than two in the window, and the first may be where the series begins
        for _ in range(4):
            before = len(case.ids())
            local.worker.wait_until(
                lambda before=before: len(case.ids()) > before, SECONDS, "a commit of this driver"
            )
            for driver in local.drivers():
                driver.kill()
        server.await_firing("ConnectPyServiceDied", SECONDS, service="spark-driver")
        server.await_firing("ConnectPyDriverReplaced", SECONDS, connector=case.name)
        there = os.readlink(java)
        before = len(case.ids())
        local.worker.wait_until(
            lambda: len(case.ids()) > before, SECONDS, "a commit of the next driver"
        )
        java.unlink()
        # a Java that ends at its start
        java.write_text("#!/bin/sh\necho 'not enough memory' >&2\nexit 1\n")
        java.chmod(0o755)
        for driver in local.drivers():
            driver.kill()
        server.await_firing("ConnectPyServiceDown", SECONDS, service="spark-driver")
        java.unlink()
        java.symlink_to(there)
        server.await_end("ConnectPyServiceDown", SECONDS)
        server.await_end("ConnectPyServiceDied", SECONDS)
        server.await_end("ConnectPyDriverReplaced", 180)
    finally:
        rows.end()
    case.assert_complete([-1, *range(rows.produced)])
