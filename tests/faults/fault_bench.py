"""Resources of all runs of the harness: a broker behind a connection that can be cut, workers,
tables, and their auditor.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil
import pyarrow as pa
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from exactly_once_events import SHORT_TIMEOUTS
from fault_kinds import Feature, Shape
from kafka_offsets import committed, ends
from lakehouse import Lakehouse
from tcp_cut import TcpCut
from worker_process import WorkerProcess, free_port

from connect_py.api.errors import ConnectError
from connect_py.embedded.broker import KafkaBroker
from connectors.iceberg.catalog.java_errors import translating
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.driver.spark_runtime import SparkRuntime
from connectors.iceberg.errors import CatalogUnavailableError
from connectors.iceberg.protocol.commit_request import MAIN, EngineSettings
from connectors.iceberg.protocol.ledger import ledger_key, look_up
from connectors.iceberg.protocol.own_refs import unpublished_branch
from connectors.iceberg_tools.audit.table_audit import AuditReport, audit
from connectors.iceberg_tools.history.table_diff import read_metadata
from connectors.iceberg_tools.refs.gate_decision import (
    Decision,
    DecisionRequest,
    UnpublishedCommits,
    decide,
    unpublished_commits,
)

ASK_SECONDS = 30.0
# Short enough that a pause is missed, long enough for a machine that others share.
TIMEOUTS = {**SHORT_TIMEOUTS, "session.timeout.ms": "6000", "consumer.session.timeout.ms": "5000"}
KEYS = 40
GROUPS = 4  # of an aggregate
UNAVAILABLE = "__debezium_unavailable_value"
USER_CODE = {
    "connect_py.spark.user-code.allowed": "iceberg.ext.expect.*,iceberg.ext.cycle-aggregate.*"
}
_AGE_MS = 2 * 3_600_000


class FaultBench:
    """One broker, worker `a` on the line that can be cut, worker `b` now and then, one catalog."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port, line, controller = free_port(), free_port(), free_port()
        self.line = TcpCut(("127.0.0.1", line))
        self.broker = KafkaBroker(
            port=port,
            properties={
                "listeners": f"PLAINTEXT://127.0.0.1:{port},LINE://127.0.0.1:{line},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},LINE://127.0.0.1:{self.line.port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LINE:PLAINTEXT,CONTROLLER:PLAINTEXT",  # noqa: E501 - one literal
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            },
        )
        self.lake = Lakehouse(folder / "lake")
        self.plan = folder / "plan"
        self.points = folder / "points.log"
        self.workers: list[WorkerProcess] = []
        self.wanted: set[int] = {0}  # workers that should run
        catalog = {
            k.removeprefix("iceberg.catalog."): v
            for k, v in self.lake.sink_config().items()
            if k.count(".") > 1
        }
        self._config = SparkConfig("lake", catalog)
        # of the auditor, and of external maintenance
        self._runtime: SparkRuntime | None = None
        self._producer: Producer | None = None
        self._admin: AdminClient | None = None  # one for all questions: each client is five threads

    def __enter__(self) -> Self:
        self.broker.start()
        faults = {"CONNECT_PY_FAULTS": f"@{self.plan}", "CONNECT_PY_FAULTS_LOG": str(self.points)}
        for name, servers in (
            ("a", f"127.0.0.1:{self.line.port}"),
            ("b", self.broker.bootstrap_servers),
        ):
            self.workers.append(
                WorkerProcess(
                    self.folder / name,
                    servers,
                    "faults",
                    {**TIMEOUTS, **USER_CODE},
                    {**faults, "FAULT_WORKER": name},
                )
            )
        self.workers[0].start()
        log = self.folder / "auditor.log"
        self._runtime = SparkRuntime(
            self._config.jvm_options(), self._config.static_settings(), log
        )
        session = self._runtime.new_session(self._config.session_settings())
        self._auditor = LakeSession(session, self._config.catalog, EngineSettings())
        self._producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear_plan()
        with contextlib.suppress(Exception):  # a broker that is gone already
            self.broker.resume()
        self.line.mend()
        for worker in self.workers:
            for process in worker.processes() if worker.seen or worker.running else []:
                _signal(process, signal.SIGCONT)
            worker.close()
        if self._runtime is not None:
            self._runtime.stop()
        self.broker.close()
        self.line.close()

    # --- Kafka

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            settings = {
                "bootstrap.servers": self.servers,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
            self._admin = AdminClient(settings)
        return self._admin

    def create_topics(self, topics: Sequence[str], partitions: int) -> None:
        for future in self.admin.create_topics(
            [NewTopic(topic, partitions, 1) for topic in topics]
        ).values():
            future.result(ASK_SECONDS)

    def produce(self, topic: str, key: str, value: Mapping[str, object]) -> None:
        assert self._producer is not None
        while True:
            try:
                self._producer.produce(topic, key=key, value=json.dumps(value).encode())
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def flush(self) -> None:
        assert self._producer is not None
        left = self._producer.flush(60)
        assert not left, f"{left} events were not produced"

    def behind(self, connector: str, topics: Sequence[str]) -> str:
        """Return the offsets that the connector's group has not committed yet."""
        try:
            done = committed(self.servers, f"connect-{connector}", *topics)
            log_ends = ends(self.admin, *topics)
        except (KafkaException, TimeoutError) as error:
            self._admin = None  # a client with a broken connection may never recover
            return f"nobody knows: {error!r}"
        left = {
            f"{topic}-{partition}": f"{done.get((topic, partition), 0)} of {end}"
            for (topic, partition), end in log_ends.items()
            if done.get((topic, partition), 0) < end
        }
        return str(left) if left else ""

    def empty_channel(self, connector: str) -> None:
        """Delete every record of the channel, as retention may."""
        partition = TopicPartition(f"control-iceberg-connect-{connector}", 0)
        end = (
            self.admin.list_offsets({partition: OffsetSpec.latest()})[partition]
            .result(ASK_SECONDS)
            .offset
        )
        partition.offset = end
        self.admin.delete_records([partition])[partition].result(ASK_SECONDS)

    # --- workers and their processes

    def running(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers if worker.running]

    def keep_running(self) -> None:
        """Start those workers again that should run."""
        for number in self.wanted:
            if not self.workers[number].running:
                self.workers[number].start(wait=False)

    def ask(
        self, method: str, path: str, body: object = None, seconds: float = 180.0
    ) -> httpx.Response:
        """Ask any worker, again while the group is being rebalanced or the worker starts."""
        deadline = time.monotonic() + seconds
        while True:
            told = "no worker runs"
            for worker in self.running():
                try:
                    answer = httpx.request(method, f"{worker.url}{path}", json=body, timeout=15)
                except httpx.HTTPError as error:
                    told = repr(error)
                    continue
                if answer.status_code < 300 or answer.status_code == 404:
                    return answer
                told = answer.text
            assert time.monotonic() < deadline, f"{method} {path}: {told}"
            self.keep_running()
            time.sleep(0.2)

    def revive(self, connector: str) -> None:
        """Restart failed tasks: a task whose process was killed stays FAILED until it is
        restarted.
        """
        # no status is known yet, or any more
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
            for worker in self.running():
                status = httpx.get(f"{worker.url}/connectors/{connector}/status", timeout=5).json()
                states = [
                    status["connector"]["state"],
                    *(task["state"] for task in status["tasks"]),
                ]
                if "FAILED" in states:
                    path = f"/connectors/{connector}/restart?includeTasks=true&onlyFailed=true"
                    httpx.post(f"{worker.url}{path}", timeout=15)
                return

    def pids_at(self, *points: str) -> list[int]:
        """Return processes that passed one of these points and are running, the latest first."""
        lines = self.points.read_text().splitlines() if self.points.exists() else []
        found = dict.fromkeys(
            int(line.split()[2]) for line in reversed(lines) if line.split()[0] in points
        )
        return [pid for pid in found if _lives(pid)]

    def coordinator(self) -> psutil.Process | None:
        found = self.pids_at("after_fencing", "before_start_commit")
        return psutil.Process(found[0]) if found else None

    def tasks(self) -> list[psutil.Process]:
        return [
            psutil.Process(pid) for pid in self.pids_at("before_group_commit", "before_close_files")
        ]

    def driver(self) -> psutil.Process | None:
        """The Spark driver process that served a coordinator last."""
        found = self.pids_at("catalog_load", "before_compare_and_swap")
        return psutil.Process(found[0]) if found else None

    def jvm(self) -> psutil.Process | None:
        driver = self.driver()
        children = driver.children() if driver is not None else []
        return next((child for child in children if "java" in child.name()), None)

    # --- faults inside processes

    def write_plan(self, items: Sequence[str]) -> None:
        fresh = self.plan.with_name("plan.new")
        fresh.write_text(",".join(items))
        os.replace(fresh, self.plan)

    def has_acted(self, point: str) -> bool:
        """Return True if a process acted on the plan at this point."""
        return any(self.folder.glob(f"plan.*.{point}"))

    def clear_plan(self) -> Counter[str]:
        """End all injected faults; returns how many of them acted, by point."""
        self.plan.unlink(missing_ok=True)
        acted: Counter[str] = Counter()
        for claim in self.folder.glob("plan.*.*"):
            acted[claim.name.split(".", 2)[2]] += 1
            claim.unlink()
        return acted

    def take_hits(self) -> Counter[str]:
        """Return how often each point was passed since the last call."""
        lines = self.points.read_text().splitlines() if self.points.exists() else []
        self.points.unlink(missing_ok=True)
        return Counter(line.split()[0] for line in lines)

    # --- tables

    def lock_catalog(self, seconds: float) -> threading.Timer:
        """Hold the catalog's write lock for a while."""
        connection = sqlite3.connect(
            self.lake.directory / "catalog.db", timeout=10, check_same_thread=False
        )
        connection.execute("BEGIN IMMEDIATE")

        def release() -> None:
            connection.rollback()
            connection.close()

        timer = threading.Timer(seconds, release)
        timer.start()
        return timer

    def compact(self, table: str) -> bool:
        """Rewrite small files into one, as somebody's maintenance does; returns whether there was
        something to do."""
        return self._maintain(
            f"CALL lake.system.rewrite_data_files(table => '{table}', options => "
            "map('min-input-files','2','delete-file-threshold','1'))"
        )

    def expire(self, table: str) -> bool:
        """Expire all snapshots but the newest."""
        return self._maintain(
            f"CALL lake.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP "
            "'2999-01-01 00:00:00', retain_last => 1)"
        )

    def age_snapshots(self, table: str) -> None:
        """Make all snapshots of a table two hours older, as another writer's commit: `auto` expires
        none that is younger than an hour."""
        namespace, _, name = table.rpartition(".")
        where = "WHERE table_namespace = ? AND table_name = ?"
        connection = sqlite3.connect(self.lake.directory / "catalog.db", timeout=10)
        try:
            for _ in range(20):
                row = connection.execute(
                    f"SELECT metadata_location FROM iceberg_tables {where}", (namespace, name)
                ).fetchone()
                if row is None:
                    return
                old = Path(row[0].removeprefix("file:").replace("///", "/", 1))
                metadata = json.loads(old.read_text())
                for key in ("snapshots", "snapshot-log", "metadata-log"):
                    for each in metadata.get(key, ()):
                        each["timestamp-ms"] -= _AGE_MS
                new = old.with_name(f"{old.name.partition('-')[0]}-{uuid.uuid4()}.metadata.json")
                new.write_text(json.dumps(metadata))
                with connection:
                    changed = connection.execute(
                        f"UPDATE iceberg_tables SET metadata_location = ?, "
                        f"previous_metadata_location = ? {where} AND metadata_location = ?",
                        (f"file://{new}", row[0], namespace, name, row[0]),
                    )
                if changed.rowcount:
                    return
                new.unlink()  # a commit of the sink was faster
        finally:
            connection.close()
        raise AssertionError(f"{table}: the sink commits faster than the snapshots age")

    def held_commits(self, table: str, connector: str) -> UnpublishedCommits | None:
        """Return the commits that await approval."""
        metadata = self._auditor.run(table, read_metadata)
        held = unpublished_commits(metadata, {f"connect-{connector}": MAIN})
        return held[0] if held else None

    def is_complete(self, table: str, connector: str, topic: str) -> bool:
        """Return True if the commits of a table, held or not, cover a whole topic."""
        group = f"connect-{connector}"
        metadata = self._auditor.run(table, read_metadata)
        ref = metadata.commit_ref(MAIN, unpublished_branch(group))
        ledger = look_up(metadata.view(ref, ledger_key(group))).ledger
        positions = {} if ledger is None else ledger.positions()
        next_offsets = {(at.topic, at.partition): each.next for at, each in positions.items()}
        log_ends = ends(self.admin, topic)
        return all(next_offsets.get(at, 0) >= end for at, end in log_ends.items())

    def decide(self, table: str, held: UnpublishedCommits, *, publish: bool) -> bool:
        """Publish held commits, or throw them away so that the connector repeats them. Return False
        if another commit was faster."""
        decision = Decision.PUBLISH if publish else Decision.REPLAY
        try:
            self._auditor.run(table, decide, DecisionRequest(decision, held))
        except ConnectError:
            return False
        return True

    def _maintain(self, statement: str) -> bool:
        try:
            with translating("maintenance", of_table=False):
                self._auditor.spark.sql(statement)
        except ConnectError:  # not made yet, or the connector was faster
            return False
        return True

    def rows(self, table: str) -> pa.Table:
        return self.lake.rows(table)

    def audit(self, table: str) -> AuditReport:
        """Raises: ConnectError: The catalog did not answer, again and again."""
        deadline = time.monotonic() + ASK_SECONDS
        while True:
            try:
                return audit(self._auditor.history(table, "main"))
            except CatalogUnavailableError:  # somebody holds its lock
                if time.monotonic() > deadline:
                    raise


def _signal(process: psutil.Process, number: signal.Signals) -> bool:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def connector_config(
    shape: Shape, topics: Sequence[str], tables: Sequence[str], lake: Lakehouse
) -> dict[str, str]:
    """Return a sink with cycles of a third of a second."""
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": ",".join(topics),
        "tasks.max": str(shape.tasks),
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.auto-create-props.format-version": str(shape.format_version),
        "iceberg.control.commit.interval-ms": "350",
        "iceberg.control.commit.timeout-ms": "3000",
        **lake.sink_config(),
    }
    if shape.tables == "routed":
        pairs = zip(topics, tables, strict=True)
        config["iceberg.ext.topic-to-table"] = ",".join(
            f"{topic}:{table}" for topic, table in pairs
        )
    else:
        config["iceberg.tables"] = ",".join(tables)
    if shape.mode == "merge":
        config |= {
            "iceberg.tables.cdc-field": "op",
            "iceberg.tables.default-id-columns": "id",
            "iceberg.ext.commit-engine": shape.engine,
        }
    match shape.feature:
        case Feature.HELD:
            config["iceberg.ext.expect.usual"] = "n % 97 != 13"
        case Feature.AGGREGATE:
            for table in tables:
                config |= _aggregate_config(table)
        case Feature.COMPACTION:
            config |= {
                # one cycle is long enough for an expiration by the first estimate of its duration
                "iceberg.control.commit.interval-ms": "4000",
                "iceberg.ext.maintenance.small-files": "2",
                "iceberg.ext.maintenance.delete-ratio": "0.05",
                "iceberg.ext.maintenance.keep": "1m",
                "iceberg.ext.maintenance.keep-snapshots": "1",
            }
    return config


def aggregate_of(table: str) -> str:
    """Return the name of the aggregate of a table."""
    return f"{table}_sums"


def _aggregate_config(table: str) -> dict[str, str]:
    key = f"iceberg.ext.cycle-aggregate.{aggregate_of(table)}"
    changes = "SELECT *, 1 AS w FROM staged UNION ALL SELECT *, -1 AS w FROM removed"
    query = f"SELECT id % {GROUPS} AS grp, sum(w) AS rows, sum(w * n) AS total FROM ({changes})"
    return {
        key: f"{query} GROUP BY 1",
        f"{key}.keys": "grp",
        f"{key}.add": "rows, total",
        f"{key}.from": table,
    }
