"""What a user may have the sink do over REST: list, publish and throw away unpublished commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connect_py.api.errors import ConfigError, NotFoundError
from connect_py.api.service import SharedServices
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import worker_spark_config
from connectors.iceberg.errors import TableMissingError
from connectors.iceberg.history.table_diff import read_metadata
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.refs.gate_decision import (
    Decision,
    DecisionRequest,
    UnpublishedCommits,
    decide,
    unpublished_commits,
    why_not,
)
from connectors.iceberg.spark.lake_client import LakeClient

REJECT = tuple(each.value for each in Decision if each is not Decision.PUBLISH)


def operate(config: IcebergSinkConfig, services: SharedServices, operation: str, arguments: Mapping[str, Any]) -> Any:
    """`unpublished` (`table`, else all), `publish` (`table`), `reject` (`table`, `rows`); `head` guards a decision.

    Raises:
        NotFoundError: There is no such operation, or nothing to decide about.
        ConfigError: The arguments make no sense, or the decision is not possible.
        ConnectError: The catalog does not answer.
    """
    decision = _decision(operation, arguments)
    names = _tables(config, arguments, one=decision is not None)
    with LakeClient(services, worker_spark_config(config, services.worker_settings), user=config.connector) as lake:
        if decision is None:
            found = {name: _look(lake, config, name) for name in names}
            return {"tables": {name: each.to_json() for name, each in found.items() if each is not None}}
        name = names[0]
        each = _look(lake, config, name)
        if each is None:
            raise NotFoundError(f"Table {name} has no unpublished commits of connector {config.connector}")
        if str(arguments.get("head", each.head)) != str(each.head):
            raise ConfigError("head", f"is {each.head} now: look again")
        request = DecisionRequest(decision, each)
        if why := why_not(request):
            raise ConfigError("", f"table {name}: {why}")
        lake.run(name, decide, request)
        return {"table": name, "decision": decision.value, **each.to_json()}


def _decision(operation: str, arguments: Mapping[str, Any]) -> Decision | None:
    known = {"unpublished": ("table",), "publish": ("table", "head"), "reject": ("table", "head", "rows")}
    if operation not in known:
        raise NotFoundError(f"The Iceberg sink has no operation {operation}: it has {', '.join(known)}")
    for name in arguments.keys() - set(known[operation]):
        raise ConfigError(name, f"is not known; {operation} takes {', '.join(known[operation])}")
    if operation == "unpublished":
        return None
    if operation == "publish":
        return Decision.PUBLISH
    if arguments.get("rows") not in REJECT:
        raise ConfigError("rows", f"must be one of {', '.join(REJECT)}")
    return Decision(arguments["rows"])


def _tables(config: IcebergSinkConfig, arguments: Mapping[str, Any], *, one: bool) -> list[str]:
    named = arguments.get("table")
    if isinstance(named, str) and named:
        return [named]
    if named is None and not one and config.tables:
        return list(config.tables)
    raise ConfigError("table", "must name a table")


def _look(lake: LakeClient, config: IcebergSinkConfig, name: str) -> UnpublishedCommits | None:
    ref = config.table(name).commit_branch or MAIN
    try:
        found = unpublished_commits(lake.run(name, read_metadata), {config.connect_group: ref})
    except TableMissingError:
        return None
    return found[0] if found else None
