"""Audit a table: verify that it contains each offset range and each data file exactly once."""

from __future__ import annotations

from connectors.iceberg.protocol.own_refs import unpublished_branch
from connectors.iceberg_tools.audit.table_audit import AuditReport
from connectors.iceberg_tools.audit.table_audit import audit as audit_history
from connectors.iceberg_tools.operations.table_operation import (
    Name,
    TableArguments,
    TableOperation,
    TableTarget,
)


class AuditArguments(TableArguments, frozen=True, kw_only=True):
    """Selects the history to audit."""

    branch: Name | None = None  # None for the connector's branch
    # None for the connector's group, or for all groups if no connector is used
    group: Name | None = None


def audit(target: TableTarget, arguments: AuditArguments) -> AuditReport:
    """Audit a table, including its unpublished commits."""
    ref, group = arguments.branch or target.ref, arguments.group or target.group
    if group is not None:
        ref = target.metadata().commit_ref(ref, unpublished_branch(group))
    target.progress("reading manifests")
    return audit_history(target.lake.history(target.table, ref), group)


AUDIT = TableOperation("audit", AuditArguments, AuditReport, audit)
