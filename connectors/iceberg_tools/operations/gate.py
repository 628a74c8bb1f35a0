"""Unpublished commits: list them, publish them, or throw them away. `head` guards a decision."""

from __future__ import annotations

from typing import Any

from connect_py.api.errors import ConfigError, NotFoundError
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.errors import TableMissingError
from connectors.iceberg.operation_request import OperationRequest
from connectors.iceberg_tools.history.table_diff import read_metadata
from connectors.iceberg_tools.operations.argument_names import takes
from connectors.iceberg_tools.refs.gate_decision import (
    Decision,
    DecisionRequest,
    UnpublishedCommits,
    decide,
    unpublished_commits,
    why_not,
)

REJECT = tuple(each.value for each in Decision if each is not Decision.PUBLISH)


@takes("table")
def unpublished(request: OperationRequest) -> Any:
    """Those of a table; without `table`, of all that the configuration names."""
    named = request.arguments.get("table") is None and request.config.tables
    names = list(request.config.tables) if named else [_table(request)]
    with request.lake() as lake:
        found = {name: _look(lake, request, name) for name in names}
    return {"tables": {name: each.to_json() for name, each in found.items() if each is not None}}


@takes("table", "head")
def publish(request: OperationRequest) -> Any:
    """Show readers the unpublished commits of a table."""
    return _decide(request, Decision.PUBLISH)


@takes("table", "head", "rows")
def reject(request: OperationRequest) -> Any:
    """Throw them away; `rows` says what becomes of theirs."""
    if request.arguments.get("rows") not in REJECT:
        raise ConfigError("rows", f"must be one of {', '.join(REJECT)}")
    return _decide(request, Decision(request.arguments["rows"]))


def _decide(request: OperationRequest, decision: Decision) -> Any:
    name = _table(request)
    with request.lake() as lake:
        each = _look(lake, request, name)
        if each is None:
            raise NotFoundError(
                f"Table {name} has no unpublished commits of connector {request.config.connector}"
            )
        if str(request.arguments.get("head", each.head)) != str(each.head):
            raise ConfigError("head", f"is {each.head} now: look again")
        wanted = DecisionRequest(decision, each)
        if why := why_not(wanted):
            raise ConfigError("", f"table {name}: {why}")
        lake.run(name, decide, wanted)
    return {"table": name, "decision": decision.value, **each.to_json()}


def _table(request: OperationRequest) -> str:
    named = request.arguments.get("table")
    if isinstance(named, str) and named:
        return named
    raise ConfigError("table", "must name a table")


def _look(lake: LakeClient, request: OperationRequest, name: str) -> UnpublishedCommits | None:
    try:
        found = unpublished_commits(
            lake.run(name, read_metadata), {request.config.connect_group: request.ref(name)}
        )
    except TableMissingError:
        return None
    return found[0] if found else None
