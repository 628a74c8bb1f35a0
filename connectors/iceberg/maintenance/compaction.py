"""Compaction between cycles in the Spark driver that runs the commits.

Compaction rewrites small files and files with many deleted rows. Each compaction is a separate
commit with four steps. The process may be killed between any two steps:

1. Plan: list the data files at the head of the commit ref, and select the files to rewrite. Nothing
   is written.
2. Write: Spark writes the live rows in these files to new files in a folder with the epoch's file
   prefix. A crash leaves unreferenced files, which the first commit of the next epoch removes (rule
   18 of the commit protocol).
3. Commit: build one `RewriteFiles` on the newest metadata, and validate it against the commits
   since the snapshot from step 1. A crash also leaves unreferenced manifests, which the search for
   orphan files removes.
4. Swap: `TableOperations.commit` compares and swaps exactly that metadata (rule 39). If the
   response is lost, the table is read again before any file is deleted. A crash after this step
   leaves nothing to clean up.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from connect_py.plurals import pluralize
from connectors.iceberg.catalog.file_rewrite import RewriteRefusedError, replace_files, write_tasks
from connectors.iceberg.catalog.java_errors import NOT_FOUND, caused_by
from connectors.iceberg.catalog.table_update import TableChange
from connectors.iceberg.config.maintenance_policy import CREATED_KEY
from connectors.iceberg.maintenance import expiration
from connectors.iceberg.maintenance.expiration import expired_snapshots, ledger_snapshots
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.ledger import look_up
from connectors.iceberg.staging.staged_file_name import StagedFileName, table_digits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.iceberg.catalog.java_catalog import JavaTable
    from connectors.iceberg.config.maintenance_policy import MaintenancePolicy
    from connectors.iceberg.driver.lake_session import LakeSession
    from connectors.iceberg.protocol.positions import Epoch
    from connectors.iceberg.protocol.table_metadata import Snapshot, TableMetadata

log = logging.getLogger(__name__)

BEFORE_WRITE, AFTER_WRITE = "before_compaction_write", "after_compaction_write"  # fault points
COMPACTION_KEY: Final = "connect-py.compaction"  # summary entry with the connector's name
# share of the target size below which a file is small, as in Iceberg's bin packing
SMALL: Final = 0.75
TARGET_BYTES: Final = 512 << 20  # Iceberg's default
# opening a file costs about as much as rewriting this many bytes
OPEN_FILE_BYTES: Final = 256 << 10
# files up to this size are merged regardless of the size of other files
_ALWAYS_MERGED_BYTES: Final = 8 << 20
# a table without automatic maintenance is measured only if it has at least this many data files
_COUNTED_FROM: Final = 500
# interval between cancellation attempts; an attempt has no effect between jobs
_CANCEL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """Limits for one compaction of one table."""

    policy: MaintenancePolicy
    connector: str
    epoch: Epoch
    property_key: str  # table property that contains the connector's ledger
    ref: str = MAIN
    # maximum bytes to rewrite, plus `OPEN_FILE_BYTES` per file; if 0, the table is only measured
    cost_limit: int = 0
    seconds: float = 60.0  # time limit after which the Spark job is canceled


class CompactionStatus(Enum):
    """Result of a compaction."""

    COMMITTED = "committed"
    NOT_DUE = "not due"
    TOO_LARGE = "too large"  # the cost exceeds the limit
    CANCELED = "canceled"  # it took too long; the new files are deleted
    REFUSED = "refused"  # another commit changed the same rows; the new files are deleted


@dataclass(frozen=True, slots=True)
class TableHealth:
    """Counts that determine which maintenance is due."""

    # True if the sink created the table, the policy is `auto`, and no commit awaits approval
    maintained: bool
    snapshots: int
    expirable: int  # number of snapshots that an expiration would remove now
    data_files: int
    delete_files: int
    records: int  # number of rows in data files, including deleted rows
    deleted_records: int
    small_files: int | None = None  # None if not counted
    mergeable_files: int = 0  # small files in one partition that a compaction would merge now


@dataclass(frozen=True, slots=True)
class CompactionOutcome:
    """Result of one `CompactionRequest`."""

    status: CompactionStatus
    health: TableHealth
    reason: str = ""  # why files were rewritten, or why not
    # cost of rewriting the files; if TOO_LARGE, the minimum cost of a useful compaction
    cost: int = 0
    replaced_files: int = 0
    new_files: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DataFileStats:
    """Size of one data file, and the number of its deleted rows."""

    index: int  # index of the file in the list of scan tasks
    partition: str  # partition spec and values
    size: int  # bytes
    rows: int  # including deleted rows
    # if a delete file applies to several data files, each gets a share in proportion to its rows
    deleted_rows: float = 0.0

    @property
    def cost(self) -> int:
        """Cost of rewriting the file."""
        return self.size + OPEN_FILE_BYTES


@dataclass(frozen=True, slots=True)
class FileSelection:
    """Files to rewrite. Empty if no compaction is due or if none is possible within the limit."""

    files: Sequence[DataFileStats] = ()
    reasons: Sequence[str] = ()
    least_cost: int = 0  # minimum cost of a useful compaction; 0 if none is due

    @property
    def cost(self) -> int:
        """Cost of rewriting the files."""
        return sum(file.cost for file in self.files)


def target_size(metadata: TableMetadata, policy: MaintenancePolicy) -> int:
    """Return the target size of compacted files in bytes."""
    table_size = metadata.properties.get("write.target-file-size-bytes", "")
    default = int(table_size) if table_size.isdecimal() else TARGET_BYTES
    return policy.target_file_size_bytes or default


def mergeable_files(files: Sequence[DataFileStats]) -> list[DataFileStats]:
    """Select the files to merge now from the small files in one partition, smallest first.

    A file larger than `_ALWAYS_MERGED_BYTES` is not merged with smaller files until the total size
    of the smaller files reaches its size. As a result, the number of times that each byte is
    rewritten and the number of small files grow with the logarithm of the table size.
    """
    longest: list[DataFileStats] = []
    group: list[DataFileStats] = []
    total = 0
    for file in sorted(files, key=lambda each: (each.size, each.index)):
        if file.size > max(_ALWAYS_MERGED_BYTES, total):  # start the next group
            group, total = [], 0
        group.append(file)
        total += file.size
        if len(group) > len(longest):
            longest = group
    return longest


def select_files(
    files: Sequence[DataFileStats], policy: MaintenancePolicy, target_bytes: int, cost_limit: int
) -> FileSelection:
    """Select the files to rewrite, with a total cost of at most `cost_limit`.

    A compaction is due if a partition has at least `small-files` files to merge, or if the share of
    deleted rows is at least `delete-ratio`. In the second case, the files in which the share is
    also at least `delete-ratio` are rewritten, starting with the highest share.
    """
    selection: list[DataFileStats] = []
    reasons: list[str] = []
    # costs of the smallest useful rewrites: one file with deletes, or two files to merge
    costs: list[int] = []
    remaining_cost = cost_limit
    rows, deleted = sum(file.rows for file in files), sum(file.deleted_rows for file in files)
    if policy.delete_ratio and rows and deleted / rows >= policy.delete_ratio:
        share = f"{deleted / rows:.0%} of the rows in data files are deleted"
        reasons.append(f"{share}, at least {policy.delete_ratio:.0%}")
        dirty = [
            file
            for file in files
            if file.rows and file.deleted_rows / file.rows >= policy.delete_ratio
        ]
        for file in sorted(dirty, key=lambda each: (-each.deleted_rows / each.rows, each.index)):
            costs.append(file.cost)
            if file.cost <= remaining_cost:
                selection.append(file)
                remaining_cost -= file.cost
    selected = {file.index for file in selection}
    partitions = [mergeable_files(group) for group in small_files(files, target_bytes).values()]
    crowded = [
        group for group in partitions if policy.small_files and len(group) >= policy.small_files
    ]
    if crowded:
        most = pluralize(max(map(len, crowded)), "small data file")
        reasons.append(f"{most} in one partition, at least {policy.small_files}")
    for group in sorted(crowded, key=lambda each: (-len(each), each[0].index)):
        rest = [file for file in group if file.index not in selected]
        costs.append(sum(file.cost for file in rest[:2]))
        fitting: list[DataFileStats] = []
        for file in rest:
            if file.cost > remaining_cost:
                break
            fitting.append(file)
            remaining_cost -= file.cost
        if len(fitting) < 2 and len(fitting) < len(rest):  # one file alone is of no use
            remaining_cost += sum(file.cost for file in fitting)
            continue
        selection.extend(fitting)
    return FileSelection(selection, reasons if selection else (), min(costs, default=0))


def small_files(
    files: Sequence[DataFileStats], target_bytes: int
) -> Mapping[str, list[DataFileStats]]:
    """Return the small files, grouped by partition."""
    groups: dict[str, list[DataFileStats]] = defaultdict(list)
    for file in files:
        if file.size < SMALL * target_bytes:
            groups[file.partition].append(file)
    return groups


def compact(session: LakeSession, name: str, request: CompactionRequest) -> CompactionOutcome:
    """Measure a table, and rewrite files if a compaction is due, within the request's limits.

    Runs in the driver.

    Raises:
        ConnectError: The catalog or the storage does not respond, or the outcome of the swap is
            unknown.
    """
    fault_point("catalog_compact")
    started = time.monotonic()
    spark, table = session.spark, session.table(name)
    metadata = table.metadata()
    head = metadata.head(request.ref)
    health = _health(metadata, head, request)
    plan: _ScanPlan | None = None
    if head is not None and (health.maintained or health.data_files >= _COUNTED_FROM):
        plan = _ScanPlan.of(table, int(head["snapshot-id"]))
        target = target_size(metadata, request.policy)
        health = _with_files(health, plan.files, target)
    if head is None or plan is None or not health.maintained:
        return _outcome(CompactionStatus.NOT_DUE, health, started)
    selection = select_files(plan.files, request.policy, target, request.cost_limit)
    if not selection.files:
        if not selection.least_cost:
            return _outcome(CompactionStatus.NOT_DUE, health, started)
        return _outcome(CompactionStatus.TOO_LARGE, health, started, cost=selection.least_cost)
    rewrite = _write(spark, table, request, head, plan, selection)
    reason = "; ".join(selection.reasons)
    if isinstance(rewrite, str):
        return _outcome(
            CompactionStatus.CANCELED, health, started, reason=rewrite, cost=selection.cost
        )
    try:
        replace_files(
            table,
            rewrite,
            request.ref,
            {COMPACTION_KEY: request.connector},
            lambda base: _refusal(base, metadata.uuid, request),
        )
    except RewriteRefusedError as refused:
        return _outcome(
            CompactionStatus.REFUSED, health, started, reason=str(refused), cost=selection.cost
        )
    table.refresh()
    metadata = table.metadata()
    head = metadata.head(request.ref)
    assert head is not None
    health = _health(metadata, head, request)
    remaining = [file for file in plan.files if file not in set(selection.files)]
    new_files = [
        _stats(-1 - number, table.content_file(file)) for number, file in enumerate(rewrite.files)
    ]
    health = _with_files(health, [*remaining, *new_files], target)
    return _outcome(
        CompactionStatus.COMMITTED,
        health,
        started,
        reason=reason,
        cost=selection.cost,
        replaced_files=len(selection.files),
        new_files=len(rewrite.files),
    )


def _outcome(
    status: CompactionStatus, health: TableHealth, started: float, **more: Any
) -> CompactionOutcome:
    return CompactionOutcome(status, health, seconds=time.monotonic() - started, **more)


def _health(
    metadata: TableMetadata, head: Snapshot | None, request: CompactionRequest
) -> TableHealth:
    """Return the counts that are available in the metadata."""
    summary = head["summary"] if head is not None else {}

    def total(name: str) -> int:
        return int(summary.get(f"total-{name}", "0"))

    maintained = (
        request.policy.is_auto
        and metadata.properties.get(CREATED_KEY, "").lower() == "true"
        and not metadata.has_unpublished(request.ref)
        and (request.ref == MAIN or request.ref in metadata.refs)
    )
    expirable: Sequence[int] = ()
    if maintained and not expiration.refusal(metadata, request.ref):
        now_ms = int(time.time() * 1000)
        expirable = expired_snapshots(metadata, request.policy, ledger_snapshots(metadata), now_ms)
    return TableHealth(
        maintained=maintained,
        snapshots=len(metadata.snapshots),
        expirable=len(expirable),
        data_files=total("data-files"),
        delete_files=total("delete-files"),
        records=total("records"),
        deleted_records=total("position-deletes"),
    )


def _with_files(
    health: TableHealth, files: Sequence[DataFileStats], target_bytes: int
) -> TableHealth:
    """Add the counts that can be determined only from the data files.

    Unlike the counts in the snapshot summary, these counts exclude deletes of rows that have since
    been removed by a rewrite.
    """
    groups = small_files(files, target_bytes)
    return dataclasses.replace(
        health,
        records=sum(file.rows for file in files),
        deleted_records=round(sum(file.deleted_rows for file in files)),
        small_files=sum(map(len, groups.values())),
        mergeable_files=max((len(mergeable_files(group)) for group in groups.values()), default=0),
    )


def _refusal(base: TableMetadata, table_uuid: str, request: CompactionRequest) -> str:
    """Return the reason a rewrite must not replace this metadata (rule 39), or an empty string."""
    if base.uuid != table_uuid:
        return "the table was replaced"
    epoch = look_up(base.view(request.ref, request.property_key)).highest_epoch
    # the coordinator of the newer epoch may have removed the new files (rule 18)
    if epoch is not None and epoch > request.epoch:
        return (
            f"a coordinator of epoch {epoch.number} has committed, but this coordinator has epoch "
            f"{request.epoch.number}"
        )
    if base.has_unpublished(request.ref):
        return "commits await approval"
    return ""


@dataclass(frozen=True, slots=True)
class _ScanPlan:
    """Scan tasks of a snapshot, and the statistics of its data files."""

    tasks: Any  # Java list of file scan tasks
    files: Sequence[DataFileStats]
    # for each delete file: indexes of the tasks that apply it
    delete_users: Mapping[int, frozenset[int]] = field(default_factory=dict)
    # for each delete file: index of one task that applies it, and its index in the task's deletes
    delete_positions: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: JavaTable, snapshot: int) -> _ScanPlan:
        """Plan a scan, and read all tasks with one call, because each py4j call is a round trip."""
        java, java_table = table.java, table.java_table
        scan = java_table.newScan().useSnapshot(snapshot).ignoreResiduals().planFiles()
        try:
            tasks = java.iceberg("relocated.com.google.common.collect.Lists").newArrayList(scan)
        finally:
            scan.close()
        if tasks.isEmpty():
            return cls(tasks, ())
        builder = java.iceberg("rest.responses.FetchScanTasksResponse").builder(java_table.specs())
        response = builder.withFileScanTasks(tasks).build()
        document = json.loads(
            java.iceberg("rest.responses.FetchScanTasksResponseParser").toJson(response)
        )
        return cls(tasks, *_read_plan(document))

    def replaced_deletes(self, selection: Sequence[DataFileStats]) -> list[Any]:
        """Return the Java delete files that apply only to selected data files."""
        selected = {file.index for file in selection}
        return [
            self.tasks.get(task).deletes().get(position)
            for delete, (task, position) in self.delete_positions.items()
            if self.delete_users[delete] <= selected
        ]


def _read_plan(
    document: Mapping[str, Any],
) -> tuple[list[DataFileStats], dict[int, frozenset[int]], dict[int, tuple[int, int]]]:
    """Return a scan's data files, and the tasks and positions of its delete files."""
    deletes = document.get("delete-files") or []
    users: dict[int, set[int]] = defaultdict(set)
    positions: dict[int, tuple[int, int]] = {}
    tasks = document["file-scan-tasks"]
    for index, task in enumerate(tasks):
        for position, delete in enumerate(task.get("delete-file-references") or ()):
            users[delete].add(index)
            positions.setdefault(delete, (index, position))
    rows = [int(task["data-file"]["record-count"]) for task in tasks]
    deleted: dict[int, float] = defaultdict(float)
    for delete, indexes in users.items():
        if deletes[delete]["content"].lower().replace("_", "-") != "position-deletes":
            continue  # an equality delete may match any number of rows
        total = sum(rows[index] for index in indexes)
        for index in indexes:
            deleted[index] += int(deletes[delete]["record-count"]) * rows[index] / max(total, 1)
    files = [
        _stats(index, task["data-file"], min(deleted[index], rows[index]))
        for index, task in enumerate(tasks)
    ]
    return files, {delete: frozenset(indexes) for delete, indexes in users.items()}, positions


def _stats(index: int, file: Mapping[str, Any], deleted_rows: float = 0.0) -> DataFileStats:
    """Return the statistics for a data file in Iceberg's JSON representation."""
    partition = f"{file['spec-id']} {json.dumps(file.get('partition'), sort_keys=True)}"
    return DataFileStats(
        index, partition, int(file["file-size-in-bytes"]), int(file["record-count"]), deleted_rows
    )


def _write(
    spark: SparkSession,
    table: JavaTable,
    request: CompactionRequest,
    head: Snapshot,
    plan: _ScanPlan,
    selection: FileSelection,
) -> TableChange | str:
    """Write the new files, and return the change.

    If the write was canceled or a source file is missing, return the reason instead. The write then
    leaves no files.
    """
    metadata = table.metadata()
    prefix = StagedFileName.epoch_prefix(
        request.connector, request.epoch, table_digits(metadata.uuid)
    )
    folder = f"{metadata.data_location}/{prefix}{uuid.uuid4()}-compacted"
    tasks = [plan.tasks.get(file.index) for file in selection.files]
    fault_point(BEFORE_WRITE)
    with _canceled_after(spark, request.seconds) as canceled:
        try:
            new_files = write_tasks(
                spark,
                table.java,
                table.elsewhere(folder, {}),
                tasks,
                open_file_bytes=OPEN_FILE_BYTES,
            )
        except Exception as error:
            if canceled.is_set():
                return f"it did not finish within {request.seconds:.1f} s"
            # another program expired the snapshot and deleted the file
            if caused_by(error, NOT_FOUND):
                return f"a file of the snapshot is missing: {str(error).splitlines()[0]}"
            raise
    fault_point(AFTER_WRITE)
    replaced = [*(task.file() for task in tasks), *plan.replaced_deletes(selection.files)]
    return TableChange(files=new_files, replaced=replaced, read_snapshot=head["snapshot-id"])


@contextmanager
def _canceled_after(spark: SparkSession, seconds: float) -> Iterator[threading.Event]:
    """Cancel the Spark jobs in the `with` block after this time, and set the yielded event."""
    context = spark.sparkContext
    tag = f"connect-py-compaction-{uuid.uuid4().hex}"
    block_ended, canceled = threading.Event(), threading.Event()

    def watch() -> None:
        if block_ended.wait(max(seconds, 0.0)):
            return
        canceled.set()
        while True:
            with suppress(Exception):  # the JVM may have exited, which the block detects
                context.cancelJobsWithTag(tag)
            if block_ended.wait(_CANCEL_SECONDS):
                return

    context.addJobTag(tag)
    thread = threading.Thread(target=watch, name="compaction-deadline", daemon=True)
    thread.start()
    try:
        yield canceled
    finally:
        block_ended.set()
        thread.join()
        context.removeJobTag(tag)
