"""`MaintenanceResult`: the result of one action on a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from connect_py.plurals import pluralize
from connectors.iceberg_tools.maintenance.maintenance_plan import MaintenanceAction
from connectors.iceberg_tools.maintenance.table_state import TableState

COUNTED: Final = (
    "data_files",
    "small_files",
    "data_bytes",
    "records",
    "deleted_records",
    "delete_files",
    "manifests",
    "snapshots",
)
# count that `rewrite_data_files` returns; the procedure succeeds even if the count is not zero
_FAILED: Final = "failed_data_files_count"


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """Result of an action."""

    action: MaintenanceAction
    before: TableState
    after: TableState
    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict)  # returned by the procedure
    skipped: str = ""  # reason the action was skipped, or empty

    @property
    def helped(self) -> bool:
        """True if the action changed the table. Otherwise, it would be due again immediately."""
        return not self.skipped and self.before != self.after

    @property
    def failure(self) -> str:
        """Description of a partial failure, or empty if the action succeeded completely."""
        files = self.counts.get(_FAILED, 0)
        return (
            f"{pluralize(files, 'data file')} could not be rewritten; "
            "see the log of the Spark driver"
            if files
            else ""
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object for the REST API."""
        return {
            **self.action.to_json(),
            "seconds": round(self.seconds, 3),
            "counts": dict(self.counts),
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "skipped": self.skipped or None,
            "failure": self.failure or None,
        }

    def line(self) -> str:
        """Return a one-line summary for users and logs."""
        kind = self.action.kind.value
        if self.skipped:
            return f"{kind}: skipped, {self.skipped}"
        before, after = self.before.to_json(), self.after.to_json()
        parts = [
            f"{name} {before[name]} -> {after[name]}"
            for name in (*COUNTED, "cold_files")
            if before[name] != after[name]
        ]
        parts = parts or [
            f"{name} {count}" for name, count in self.counts.items() if count and name != _FAILED
        ]
        parts = [self.failure, *parts] if self.failure else parts
        return (
            f"{kind}: {', '.join(parts).replace('_', ' ') or 'nothing to do'} "
            f"({self.seconds:.1f} s)"
        )
