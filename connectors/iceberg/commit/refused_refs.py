"""Refusals by catalogs that accept no branch or tag except main."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.iceberg.config.expectations import EXPECT
from connectors.iceberg.config.keys import (
    COMMIT_BRANCH,
    EXPECT_PREFIX,
    MAINTENANCE_PREFIX,
    TABLE_PREFIX,
    TAGS,
)
from connectors.iceberg.errors import TableUnsuitableError

if TYPE_CHECKING:
    from connectors.iceberg.catalog.table_update import TableUpdate
    from connectors.iceberg.protocol.commit_request import CommitRequest


def naming_ref_settings(
    error: TableUnsuitableError, update: TableUpdate, request: CommitRequest
) -> TableUnsuitableError:
    """Return the error of a refused swap, with the settings that need the refs that it changes."""
    refs = update.changed_refs()
    if not refs:
        return error
    settings = sorted({_setting(ref, request) for ref in refs})
    return TableUnsuitableError(
        request.table,
        f"{error.why}; {', '.join(settings)} requires a catalog that supports branches and tags "
        f"of tables (this commit changes {', '.join(refs)})",
    )


def _setting(ref: str, request: CommitRequest) -> str:
    """Return the key that makes commits change a ref."""
    table = f"{TABLE_PREFIX}{request.table}."
    if ref == request.unpublished_branch:
        return f"action hold of {EXPECT_PREFIX}* or {table}{EXPECT}.*"
    if ref == request.ref:
        return f"{table}commit-branch or {COMMIT_BRANCH}"
    if ref == request.ledger_tag:
        return f"{MAINTENANCE_PREFIX}enabled=true"
    return f"{TAGS} or {table}tags"
