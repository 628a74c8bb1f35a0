"""Errors from catalogs that support neither tags nor branches other than main."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.iceberg.config.ref_settings import (
    BRANCH,
    FULL_MAINTENANCE,
    HOLD,
    SCHEDULED_TAGS,
    RefSetting,
)
from connectors.iceberg.errors import TableUnsuitableError

if TYPE_CHECKING:
    from connectors.iceberg.catalog.table_update import TableUpdate
    from connectors.iceberg.protocol.commit_request import CommitRequest


def naming_ref_settings(
    error: TableUnsuitableError, update: TableUpdate, request: CommitRequest
) -> TableUnsuitableError:
    """Return the error for a rejected swap. It names the settings that require the changed refs."""
    refs = update.changed_refs()
    if not refs:
        return error
    settings = sorted({_setting(ref, request).keys_of(request.table) for ref in refs})
    return TableUnsuitableError(
        request.table,
        f"{error.why}; {', '.join(settings)} requires a catalog that supports branches and tags "
        f"(this commit changes {', '.join(refs)})",
    )


def _setting(ref: str, request: CommitRequest) -> RefSetting:
    """Return the setting that requires commits to change a ref."""
    if ref == request.unpublished_branch:
        return HOLD
    if ref == request.ref:
        return BRANCH
    return FULL_MAINTENANCE if ref == request.ledger_tag else SCHEDULED_TAGS
