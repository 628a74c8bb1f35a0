"""List, publish, or reject unpublished commits.

A decision is refused if the argument `head` is no longer the head of the branch.
"""

from __future__ import annotations

from typing import Any

from connect_py.api.errors import ConfigError, NotFoundError
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.errors import TableMissingError
from connectors.iceberg.operation_request import OperationRequest
from connectors.iceberg_tools.history.table_diff import read_metadata
from connectors.iceberg_tools.operations.argument_names import accepts
from connectors.iceberg_tools.refs.gate_decision import (
    Decision,
    DecisionRequest,
    UnpublishedCommits,
    decide,
    unpublished_commits,
    why_not,
)

REJECT = tuple(each.value for each in Decision if each is not Decision.PUBLISH)


@accepts("table")
def unpublished(request: OperationRequest) -> Any:
    """Return the unpublished commits of a table, or of all tables in the configuration."""
    all_tables = request.arguments.get("table") is None and request.config.tables
    names = list(request.config.tables) if all_tables else [_table(request)]
    with request.lake() as lake:
        commits = {name: _unpublished_commits(lake, request, name) for name in names}
    return {"tables": {name: each.to_json() for name, each in commits.items() if each is not None}}


@accepts("table", "head")
def publish(request: OperationRequest) -> Any:
    """Publish the unpublished commits of a table."""
    return _decide(request, Decision.PUBLISH)


@accepts("table", "head", "rows")
def reject(request: OperationRequest) -> Any:
    """Reject the unpublished commits of a table. `rows` specifies how their rows are handled."""
    if request.arguments.get("rows") not in REJECT:
        raise ConfigError("rows", f"must be one of {', '.join(REJECT)}")
    return _decide(request, Decision(request.arguments["rows"]))


def _decide(request: OperationRequest, decision: Decision) -> Any:
    name = _table(request)
    with request.lake() as lake:
        each = _unpublished_commits(lake, request, name)
        if each is None:
            raise NotFoundError(
                f"Table {name} has no unpublished commits of connector {request.config.connector}"
            )
        if str(request.arguments.get("head", each.head)) != str(each.head):
            raise ConfigError("head", f"is now {each.head}; check the unpublished commits again")
        decision_request = DecisionRequest(decision, each)
        if reason := why_not(decision_request):
            raise ConfigError("", f"table {name}: {reason}")
        lake.run(name, decide, decision_request)
    return {"table": name, "decision": decision.value, **each.to_json()}


def _table(request: OperationRequest) -> str:
    name = request.arguments.get("table")
    if isinstance(name, str) and name:
        return name
    raise ConfigError("table", "must be the name of a table")


def _unpublished_commits(
    lake: LakeClient, request: OperationRequest, name: str
) -> UnpublishedCommits | None:
    try:
        commits = unpublished_commits(
            lake.run(name, read_metadata), {request.config.connect_group: request.ref(name)}
        )
    except TableMissingError:
        return None
    return commits[0] if commits else None
