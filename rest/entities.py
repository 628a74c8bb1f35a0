"""JSON entities in responses.

The names, the order, and the omission of members are part of the API contract.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fastapi import Response

from connect_py.herder.herder import (
    ConfigInfo,
    ConfigInfos,
    ConfigKeyInfo,
    ConnectorInfo,
    ConnectorStatus,
    PluginInfo,
    ServerInfo,
    TaskInfo,
)
from connect_py.model import ConnectorOffset, ConnectorTaskId, State, Status


def json_response(
    entity: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a response with a JSON entity. See `json_bytes`."""
    return Response(
        json_bytes(entity), status_code=status, media_type="application/json", headers=headers
    )


def json_bytes(entity: Any) -> bytes:
    """Return compact JSON. Members retain their order, and non-ASCII characters are not escaped."""
    return json.dumps(entity, separators=(",", ":"), ensure_ascii=False).encode()


def empty_response(status: int) -> Response:
    """Return a response without an entity. Content-Length is 0 for 202 and omitted for 204."""
    response = Response(status_code=status)
    for name in ("content-type", *(("content-length",) if status == 204 else ())):
        if name in response.headers:
            del response.headers[name]
    return response


def server_info(info: ServerInfo) -> dict[str, Any]:
    return {
        "version": info.version,
        "commit": info.commit,
        "kafka_cluster_id": info.kafka_cluster_id,
    }


def task_id(id: ConnectorTaskId) -> dict[str, Any]:  # noqa: A002 - Kafka Connect's name
    return {"connector": id.connector, "task": id.task}


def connector_info(info: ConnectorInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "config": dict(info.config),
        "tasks": [task_id(t) for t in info.tasks],
        "type": info.type,
    }


def _state(status: Status) -> dict[str, Any]:
    entity: dict[str, Any] = {
        "state": status.state.value,
        "worker_id": status.worker_id,
        "version": status.version,
    }
    if status.trace:
        entity["trace"] = status.trace
    if status.waiting is not None:
        since = datetime.fromtimestamp(status.waiting.since_ms / 1000, UTC).isoformat(
            timespec="milliseconds"
        )
        entity["waiting"] = {
            "for": status.waiting.what,
            "since": since.replace("+00:00", "Z"),
            "reason": status.waiting.reason,
        }
    if status.warnings:
        entity["warnings"] = [*status.warnings]
    return entity


def task_state(task: int, status: Status) -> dict[str, Any]:
    return {"id": task, **_state(status)}


def connector_status(status: ConnectorStatus) -> dict[str, Any]:
    connector = _state(status.connector)
    if status.stop_reason is not None and status.connector.state is State.STOPPED:
        connector["stopped"] = {"reason": status.stop_reason}
    return {
        "name": status.name,
        "connector": connector,
        "tasks": [task_state(task, status.tasks[task]) for task in sorted(status.tasks)],
        "type": status.type,
    }


def task_info(info: TaskInfo) -> dict[str, Any]:
    return {"id": task_id(info.id), "config": dict(info.config)}


def connector_offsets(offsets: Sequence[ConnectorOffset]) -> dict[str, Any]:
    return {
        "offsets": [{"partition": entry.partition, "offset": entry.offset} for entry in offsets]
    }


def plugin_info(info: PluginInfo) -> dict[str, Any]:
    entity: dict[str, Any] = {"class": info.name, "type": info.kind.value}
    if info.version is not None:
        entity["version"] = info.version
    return entity


def config_key_info(info: ConfigKeyInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "type": info.type,
        "required": info.required,
        "default_value": info.default_value,
        "importance": info.importance,
        "documentation": info.documentation,
        "group": info.group,
        "width": info.width,
        "display_name": info.display_name,
        "dependents": list(info.dependents),
        "order_in_group": info.order_in_group,
        "order": info.order_in_group,  # member name before Kafka 4.2, for older UIs
    }


def _config_info(info: ConfigInfo) -> dict[str, Any]:
    value = info.value
    return {
        "definition": None if info.definition is None else config_key_info(info.definition),
        "value": None
        if value is None
        else {
            "name": value.name,
            "value": value.value,
            "recommended_values": list(value.recommended_values),
            "errors": list(value.errors),
            "visible": value.visible,
        },
    }


def config_infos(infos: ConfigInfos) -> dict[str, Any]:
    return {
        "name": infos.name,
        "error_count": infos.error_count,
        "groups": list(infos.groups),
        "configs": [_config_info(c) for c in infos.configs],
    }
