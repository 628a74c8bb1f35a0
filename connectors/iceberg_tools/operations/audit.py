"""Audit of a table: verifies that offset ranges and data files are in it exactly once."""

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
    """The history to audit."""

    branch: Name | None = None  # None: the connector's
    group: Name | None = None  # None: the connector's, or all


def audit(target: TableTarget, arguments: AuditArguments) -> AuditReport:
    """Audit a table, including commits that readers do not see yet."""
    ref, group = arguments.branch or target.ref, arguments.group or target.group
    if group is not None:
        ref = target.metadata().commit_ref(ref, unpublished_branch(group))
    target.progress("reading manifests")
    return audit_history(target.lake.history(target.table, ref), group)


AUDIT = TableOperation("audit", AuditArguments, AuditReport, audit)
