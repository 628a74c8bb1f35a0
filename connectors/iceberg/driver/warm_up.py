"""`WarmUp`: commits to a private table while the driver is idle.

The warm-up speeds up the first commit of a connector, because a JVM is slow while it loads classes
and interprets their code. The training run of the class archive performs the same commits.

The warm-up has the lowest priority. It starts a step only if no request is running and none has run
for a while. It ends when a connector commits for the first time. A request never waits for a step,
but it shares the CPU with a step that is running.

The operating system priority is not lowered. Otherwise, threads that Spark and Iceberg create
during a step would inherit the priority, and connectors' commits use the same threads.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from connect_py.plurals import pluralize
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.driver.spark_runtime import SparkRuntime
from connectors.iceberg.protocol.commit_request import (
    SNAPSHOT_ID,
    CommitRequest,
    CommitStatus,
    EngineSettings,
)
from connectors.iceberg.protocol.faults import no_fault_points
from connectors.iceberg.protocol.ledger import Ledger, LedgerProperty, TopicLedger, look_up
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.table_metadata import WRITE_MODES
from connectors.iceberg.staging.staged_file_name import table_digits
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import WriteMode

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 5.0  # time without a request before a step starts
# idle time before the first request; shorter, because a task that waits for the driver connects
# immediately
FIRST_IDLE_SECONDS: Final = 0.5
COMMIT: Final = "commit"  # method of the request that ends the warm-up
# format versions of the tables; 2 is first because it is the connectors' default
_VERSIONS: Final = (2, 3)
_LEDGER: Final = "connect-py.ledger.training"


class WarmUp(threading.Thread):
    """Thread that performs the warm-up once. Thread-safe."""

    def __init__(self, runtime: SparkRuntime, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name="spark-warm-up", daemon=True)
        self._runtime = runtime
        self._clock = clock
        self._changed = threading.Condition()
        self._requests = 0  # number of running requests
        # time from which the next step may start if no request is running
        self._idle_at = clock() + FIRST_IDLE_SECONDS
        self._is_over = False

    @contextmanager
    def request(self, method: str) -> Iterator[None]:
        """Prevent steps from starting during the `with` block and shortly after it."""
        with self._changed:
            self._requests += 1
            self._is_over = self._is_over or method == COMMIT
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._requests -= 1
                self._idle_at = self._clock() + IDLE_SECONDS
                self._changed.notify_all()

    def _may_continue(self) -> bool:
        """Wait until the driver is idle. Return False if the warm-up is over."""
        with self._changed:
            while not self._is_over:
                seconds = self._idle_at - self._clock()
                if self._requests == 0 and seconds <= 0:
                    return True
                self._changed.wait(None if self._requests else seconds)
            return False

    def run(self) -> None:
        """Perform the steps while the driver is idle."""
        if not self._may_continue():
            return
        started, steps = self._clock(), 0
        # the scratch folder is removed even if the driver is killed
        folder = self._runtime.scratch / "warm-up"
        folder.mkdir()
        try:
            with no_fault_points():
                for _ in self._steps(folder):
                    steps += 1
                    if not self._may_continue():
                        break
        except Exception as error:  # noqa: BLE001 - connectors do not need the warm-up
            if self._runtime.running:  # otherwise, the driver is shutting down
                log.warning(
                    "warm-up failed after %s, the first commits are slower: %s",
                    pluralize(steps, "step"),
                    error,
                )
        else:
            log.info(
                "warm-up ended after %s and %.1f s",
                pluralize(steps, "step"),
                self._clock() - started,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # may have been removed already

    def _steps(self, folder: Path) -> Iterator[None]:
        config = training_config(folder)
        session = self._runtime.new_session(config.session_settings())
        session.sparkContext.setLocalProperty("spark.scheduler.pool", "warm-up")
        lake = LakeSession(session, config.catalog, EngineSettings())
        for version in _VERSIONS:
            yield from training_steps(lake, f"t{version}", version)


def training_config(folder: Path) -> SparkConfig:
    """Return the configuration of a session whose catalog and tables are in this folder."""
    return SparkConfig(
        catalog="training",
        catalog_properties={
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        },
    )


def training_steps(lake: LakeSession, table: str, version: int) -> Iterator[None]:
    """Create a table, append, merge, and clean up. Yield after each step.

    Args:
        lake: A session that was created with `training_config`.
        table: The name of a new table in the namespace `shop`, without the namespace.
        version: The format version of the table.

    Raises:
        RuntimeError: A commit failed.
    """
    name = f"shop.{table}"
    modes = "".join(f", '{key}'='merge-on-read'" for key in WRITE_MODES)
    lake.spark.sql("CREATE NAMESPACE IF NOT EXISTS training.shop")
    lake.spark.sql(
        f"CREATE TABLE training.{name} (id bigint NOT NULL, text string, price decimal(10, 2), at "
        f"timestamp) TBLPROPERTIES ('format-version'='{version}'{modes})"
    )
    yield
    for first in (0, 50, 70):  # first row ID: one append, then two commits that replace rows
        request = _training_request(lake, name, first)
        yield
        outcome = lake.commit(request)
        if outcome.status is not CommitStatus.COMMITTED:
            raise RuntimeError(f"training commit failed: {outcome.reason}")
        yield
    lake.evolve(name, [SchemaChange(ChangeKind.ADD, ("more",), '"string"')])
    yield
    lake.remove_files(name, lake.load(name, _LEDGER).description.uuid, "connect-training-", 1)
    yield


def _training_request(lake: LakeSession, name: str, first: int) -> CommitRequest:
    """Stage 100 rows, and return the request that commits them."""
    expected = look_up(lake.load(name, _LEDGER).view).version
    commit_id, table = str(uuid.uuid4()), lake.table(name)
    rows = lake.spark.range(first, first + 100).selectExpr(
        "id",
        "concat('row ', id) AS text",
        "CAST(1 AS decimal(10, 2)) AS price",
        "timestamp_micros(id) AS at",
    )
    # `remove_files` recognizes this folder name
    folder = f"connect-training-0-a.{table_digits(expected.uuid)}.{commit_id}"
    ledger = Ledger(
        Epoch(0, "training"), commit_id, 1, expected.uuid, "", {"shop": TopicLedger("", {})}
    )
    return CommitRequest(
        name,
        commit_id,
        expected,
        _LEDGER,
        LedgerProperty.template(ledger, {}, SNAPSHOT_ID),
        {_LEDGER: ledger.to_json()},
        [*map(table.as_staged, table.write(rows, folder))],
        WriteMode.MERGE,
        ["id"],
    )
