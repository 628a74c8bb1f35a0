"""`MaintenanceResult`: what one action did to a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

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
# of `rewrite_data_files`, which ends well although files could not be read
_FAILED: Final = "failed_data_files_count"


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """What an action did."""

    action: MaintenanceAction
    before: TableState
    after: TableState
    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict)  # as the procedure says them
    skipped: str = ""  # why nothing was done

    @property
    def helped(self) -> bool:
        """Whether it changed the table: else it would be due again at once."""
        return not self.skipped and self.before != self.after

    @property
    def failure(self) -> str:
        """What could not be done; empty: everything was. A compaction may have rewritten other
        files."""
        files = self.counts.get(_FAILED, 0)
        return (
            f"{files} data files could not be rewritten, the log of Spark's driver says why"
            if files
            else ""
        )

    def to_json(self) -> dict[str, Any]:
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
        """For people and logs."""
        what = self.action.kind.value
        if self.skipped:
            return f"{what}: left out, {self.skipped}"
        before, after = self.before.to_json(), self.after.to_json()
        shown = (*COUNTED, "cold_files")
        parts = [
            f"{name} {before[name]} -> {after[name]}"
            for name in shown
            if before[name] != after[name]
        ]
        parts = parts or [
            f"{name} {count}" for name, count in self.counts.items() if count and name != _FAILED
        ]
        parts = [self.failure, *parts] if self.failure else parts
        return (
            f"{what}: {', '.join(parts).replace('_', ' ') or 'nothing to do'} "
            f"({self.seconds:.1f} s)"
        )
