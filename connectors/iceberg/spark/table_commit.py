"""How requests and answers look on the way to and from `TableCommit.java`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from connect_py.api.errors import CommitStateUnknownError
from connectors.iceberg.spark.commit_request import (
    COMMIT_ID_KEY,
    SNAPSHOT_ID,
    CommitCounts,
    CommitOutcome,
    CommitRequest,
    CommitStatus,
    EngineName,
)
from connectors.iceberg.spark.errors import CatalogUnavailableError

if TYPE_CHECKING:
    from connectors.iceberg.spark.session import SparkDriver

BEFORE_SWAP = "before_compare_and_swap"  # fault point: the snapshot is prepared and nobody sees it


def to_json(request: CommitRequest, **more: Any) -> str:
    """The request as JSON text; `more` adds members that one engine needs."""
    expected = request.expected
    document = {
        "table": request.table,
        "ref": request.ref,
        "expected": {
            "uuid": expected.uuid,
            "ledger": expected.ledger_snapshot,
            "property": expected.property_snapshot,
        },
        "key": request.property_key,
        "template": request.property_template,
        "placeholder": SNAPSHOT_ID,
        "summary": {**request.summary, COMMIT_ID_KEY: request.commit_id},
        "files": [file.to_json() for file in request.files],
        "key_columns": list(request.key_columns),
        "properties": dict(request.properties),
        **more,
    }
    return json.dumps(document)


def land(driver: SparkDriver, request: CommitRequest, engine: EngineName, method: str, argument: str) -> CommitOutcome:
    """Make visible what was prepared: before this call nothing can have landed.

    Raises:
        CommitStateUnknownError: No answer.
        TableMissingError, TableForbiddenError, TableUnsuitableError: It was refused.
    """
    try:
        return outcome(engine, driver.call(request.table, "TableCommit", method, argument))
    except CatalogUnavailableError as error:
        raise CommitStateUnknownError(str(error)) from error


def outcome(engine: EngineName, answer: Mapping[str, Any]) -> CommitOutcome:
    """The engine's answer; ids travel as text, because JSON readers may round them."""
    snapshot = answer.get("snapshot")
    counts = CommitCounts(
        added_files=answer.get("added_files", 0),
        added_rows=answer.get("added_rows", 0),
        replaced_rows=answer.get("replaced_rows", 0),
        unmatched_patches=answer.get("unmatched_patches", 0),
    )
    return CommitOutcome(
        CommitStatus(answer["status"]),
        engine,
        int(snapshot) if snapshot is not None else None,
        answer["reason"],
        counts,
    )
