"""Determines which actions are due from a table's state and policy. Does no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from connect_py.plurals import pluralize
from connectors.iceberg.config.maintenance_policy import DAYS, MaintenancePolicy
from connectors.iceberg_tools.maintenance.table_state import TableState

_FILES_PER_MANIFEST = 1000


class MaintenanceKind(Enum):
    """Kinds of actions in execution order. Each action reduces the work of the next one."""

    EXPIRE = "expire snapshots"
    MOVE = "move cold partitions"
    COMPACT = "compact data files"
    COMPACT_DELETES = "compact delete files"
    MANIFESTS = "rewrite manifests"
    ORPHANS = "remove orphan files"


@dataclass(frozen=True, slots=True)
class MaintenanceAction:
    """One due action."""

    kind: MaintenanceKind
    reason: str  # displayed to users

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for the REST API."""
        return {"action": self.kind.value, "reason": self.reason}


def due_actions(
    state: TableState, policy: MaintenancePolicy, now_ms: int
) -> list[MaintenanceAction]:
    """Return the due actions in execution order, or none while commits await approval."""
    if state.snapshot is None or state.unpublished:
        return []
    due: list[tuple[MaintenanceKind, str]] = []
    limit = policy.full_snapshots
    if limit and state.snapshots > limit and state.expirable:
        why = f"{state.snapshots} snapshots, more than {limit}; {state.expirable} may be expired"
        due.append((MaintenanceKind.EXPIRE, why))
    if state.movable:
        why = pluralize(state.movable, "partition is old enough", "partitions are old enough")
        due.append((MaintenanceKind.MOVE, why))
    reasons = []
    if policy.small_files and state.most_small_files >= policy.small_files:
        reasons.append(
            f"{pluralize(state.most_small_files, 'small data file')} in one partition, at least "
            f"{policy.small_files}"
        )
    ratio = state.deleted_records / state.records if state.records else 0.0
    exceeds_delete_ratio = policy.delete_ratio and ratio >= policy.delete_ratio
    if exceeds_delete_ratio:
        reasons.append(
            f"{ratio:.0%} of the rows in data files are deleted, at least {policy.delete_ratio:.0%}"
        )
    if reasons:
        due.append((MaintenanceKind.COMPACT, "; ".join(reasons)))
    has_many_delete_files = policy.delete_files and state.delete_files >= policy.delete_files
    if state.format_version == 2 and (
        has_many_delete_files or (exceeds_delete_ratio and state.delete_files)
    ):
        # a compaction leaves position deletes that refer to removed data files
        due.append((MaintenanceKind.COMPACT_DELETES, pluralize(state.delete_files, "delete file")))
    required = state.data_files // _FILES_PER_MANIFEST + 2
    if policy.manifests and state.manifests >= max(policy.manifests, 2 * required):
        due.append(
            (MaintenanceKind.MANIFESTS, f"{state.manifests} manifests, at least {policy.manifests}")
        )
    if policy.orphan_age_ms is not None and now_ms - state.orphans_checked_ms >= DAYS:
        due.append((MaintenanceKind.ORPHANS, "last searched for at least a day ago"))
    return [MaintenanceAction(kind, reason) for kind, reason in due]


def may_be_due(
    state: TableState, last: TableState | None, policy: MaintenancePolicy, now_ms: int
) -> bool:
    """Return True if the metadata shows that actions may be due, so files must be counted.

    `last` is the state when files were last counted. Since then, a partition cannot have gained
    more small files than the table has gained data files, and each commit has added one or two
    manifests.
    """
    if due_actions(state, policy, now_ms):
        return True
    if state.snapshot is None or state.unpublished:
        return False
    possible_small_files = (
        last.most_small_files - last.data_files if last is not None else 0
    ) + state.data_files
    commits = state.sequence - (last.sequence - last.manifests if last is not None else 0)
    may_compact = bool(policy.small_files) and possible_small_files >= policy.small_files
    return may_compact or bool(policy.manifests and commits >= policy.manifests)
