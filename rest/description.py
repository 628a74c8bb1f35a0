"""Descriptions of the parameters, bodies, and responses in `/openapi.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from fastapi import Response

Schema: TypeAlias = dict[str, Any]

JSON: Final = "application/json"
TEXT: Final[Schema] = {"type": "string"}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
INTEGER: Final[Schema] = {"type": "integer", "format": "int32"}
TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
FLAG: Final[Schema] = {"type": "boolean", "default": False}


def ref(name: str) -> Schema:
    """Return a reference to an entity in `ENTITIES`."""
    return {"$ref": f"#/components/schemas/{name}"}


def array_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _entity(optional: Iterable[str] = (), **members: Schema) -> Schema:
    required = [name for name in members if name not in optional]
    return {
        "type": "object",
        "properties": members,
        "required": required,
        "additionalProperties": False,
    }


def map_of(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


_STATES: Final[Schema] = {
    "type": "string",
    "enum": ["RUNNING", "PAUSED", "STOPPED", "FAILED", "UNASSIGNED", "RESTARTING"],
}
_KINDS: Final[Schema] = {
    "type": "string",
    "enum": ["sink", "source", "transformation", "predicate", "converter", "header_converter"],
}
_WAITING: Final[Schema] = {
    **_entity(**{"for": TEXT}, since={"type": "string", "format": "date-time"}, reason=TEXT),
    "description": "Present only if a running instance cannot make progress; not in Kafka Connect.",
}
_WARNINGS: Final[Schema] = {
    **array_of(TEXT),
    "description": "Present only if a running task needs attention; not in Kafka Connect.",
}
_STOPPED: Final[Schema] = {
    **_entity(reason=TEXT),
    "description": "Present only if a task requested the stop; not in Kafka Connect.",
}
_INSTANCE: Final[Mapping[str, Schema]] = {
    "state": _STATES,
    "worker_id": TEXT_OR_NULL,
    "version": TEXT_OR_NULL,
    "trace": TEXT,
    "waiting": _WAITING,
    "warnings": _WARNINGS,
}
ENTITIES: Final[Mapping[str, Schema]] = {
    "Error": _entity(error_code=INTEGER, message=TEXT_OR_NULL),
    "ServerInfo": _entity(version=TEXT, commit=TEXT, kafka_cluster_id=TEXT),
    "WorkerStatus": _entity(
        status={"type": "string", "enum": ["healthy", "starting", "unhealthy"]}, message=TEXT
    ),
    "Config": {
        "description": "Keys and values. Numbers and booleans are converted to strings.",
        **map_of({"type": ["string", "number", "boolean", "null"]}),
    },
    "StoredConfig": map_of(TEXT_OR_NULL),
    "CreateConnectorRequest": _entity(
        ("name", "initial_state"),
        name=TEXT_OR_NULL,
        config=ref("Config"),
        initial_state={
            "type": "string",
            "enum": ["RUNNING", "PAUSED", "STOPPED"],
            "description": "Not case-sensitive.",
        },
    ),
    "TaskId": _entity(connector=TEXT, task=INTEGER),
    "ConnectorInfo": _entity(
        name=TEXT,
        config=ref("StoredConfig"),
        tasks=array_of(ref("TaskId")),
        type={"type": "string", "enum": ["sink", "source", "unknown"]},
    ),
    "InstanceState": _entity(
        ("trace", "version", "waiting", "warnings", "stopped"), **_INSTANCE, stopped=_STOPPED
    ),
    "TaskState": _entity(("trace", "version", "waiting", "warnings"), id=INTEGER, **_INSTANCE),
    "ConnectorStateInfo": _entity(
        name=TEXT,
        connector=ref("InstanceState"),
        tasks=array_of(ref("TaskState")),
        type={"type": "string", "enum": ["sink", "source", "unknown"]},
    ),
    "ExpandedConnector": _entity(
        ("status", "info"),
        status=ref("ConnectorStateInfo"),
        info={"oneOf": [ref("ConnectorInfo"), {"type": "null"}]},
    ),
    "TaskInfo": _entity(id=ref("TaskId"), config=ref("StoredConfig")),
    "ConnectorOffsets": _entity(
        offsets=array_of(
            _entity(
                ("partition", "offset"),
                partition={"type": ["object", "null"]},
                offset={"type": ["object", "null"]},
            )
        )
    ),
    "ActiveTopics": map_of(_entity(topics=TEXTS)),
    "PluginInfo": _entity(("version",), **{"class": TEXT}, type=_KINDS, version=TEXT),
    "ConfigKeyInfo": _entity(
        name=TEXT,
        type={
            "type": "string",
            "enum": [
                "BOOLEAN",
                "STRING",
                "INT",
                "SHORT",
                "LONG",
                "DOUBLE",
                "LIST",
                "CLASS",
                "PASSWORD",
            ],
        },
        required={"type": "boolean"},
        default_value=TEXT_OR_NULL,
        importance={"type": "string", "enum": ["HIGH", "MEDIUM", "LOW"]},
        documentation=TEXT,
        group=TEXT_OR_NULL,
        width={"type": "string", "enum": ["NONE", "SHORT", "MEDIUM", "LONG"]},
        display_name=TEXT,
        dependents=TEXTS,
        order_in_group=INTEGER,
        order={
            **INTEGER,
            "description": "Same as order_in_group, under its name before Kafka 4.2.",
        },
    ),
    "ConfigValueInfo": _entity(
        name=TEXT,
        value=TEXT_OR_NULL,
        recommended_values=TEXTS,
        errors=TEXTS,
        visible={"type": "boolean"},
    ),
    "ConfigInfos": _entity(
        name=TEXT,
        error_count=INTEGER,
        groups=TEXTS,
        configs=array_of(
            _entity(
                definition={"oneOf": [ref("ConfigKeyInfo"), {"type": "null"}]},
                value={"oneOf": [ref("ConfigValueInfo"), {"type": "null"}]},
            )
        ),
    ),
    "LoggerLevel": _entity(
        level=TEXT, last_modified={"type": ["integer", "null"], "format": "int64"}
    ),
    "LevelRequest": {
        "type": "object",
        "properties": {
            "level": {
                "type": "string",
                "enum": ["OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL"],
                "description": "Not case-sensitive.",
            }
        },
        "required": ["level"],
    },
    "Message": _entity(message=TEXT),
    "StopRequest": _entity(start_number={**INTEGER, "format": "int64"}, reason=TEXT),
}
_REFUSALS: Final[Mapping[int, str]] = {
    400: "The request or a configuration is invalid",
    401: "The user is not authorized",
    403: "The feature is disabled, or the signature of a request between workers is invalid",
    404: "Not found",
    406: "The client does not accept JSON",
    409: "The name already exists, or the worker group is rebalancing (retry the request)",
    413: "The body is too large or has too many keys",
    414: "The path and its query string are longer than 8 KiB",
    415: "The body is not JSON",
    431: "The headers are larger than 8 KiB",
    500: "The body is malformed, the request failed, or it timed out (the message names the "
    "operation in progress)",
    503: "The worker is not ready yet",
}
_PATHS: Final[Mapping[str, Schema]] = {"task": INTEGER}


def describe(
    path: str,
    summary: str,
    answers: Mapping[int, Schema | None],
    *,
    query: Mapping[str, Schema] | None = None,
    body: Schema | None = None,
    refusals: Iterable[int] = (),
    forwarded: bool = False,
    media_type: str = JSON,
) -> dict[str, Any]:
    """Return the keyword arguments for a FastAPI route with this description.

    Args:
        path: The path template.
        summary: One line for the list of routes.
        answers: Response entity for each success status, or None if the response has no body. The
            first status is the default.
        query: Schemas of the query parameters, by name.
        body: Schema of the request body.
        refusals: Error statuses in addition to the statuses that all requests have in common.
        forwarded: True if the request may be forwarded to another worker.
        media_type: The response's media type. The Accept header is ignored for types other than
            JSON.
    """
    statuses = {400, 414, 431, 500, *refusals}
    if media_type == JSON:
        statuses.add(406)
    if forwarded:
        statuses.add(409)
    if body is not None:
        statuses |= {413, 415}
    responses: dict[int | str, dict[str, Any]] = {
        status: _answer(_REFUSALS[status], ref("Error"))
        for status in sorted(statuses - set(answers))
    }
    responses[401] = {"description": _REFUSALS[401], "content": {JSON: {}}}
    for status, entity in answers.items():
        responses[status] = _answer("Done" if entity is None else "Success", entity, media_type)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _PATHS.get(name, TEXT)}
        for name in (part[1:-1] for part in path.split("/") if part.startswith("{"))
    ]
    parameters += [
        {"name": name, "in": "query", "schema": schema} for name, schema in (query or {}).items()
    ]
    extra: dict[str, Any] = {"parameters": parameters}
    if body is not None:
        extra["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    return {
        "path": path,
        "summary": summary,
        "status_code": next(iter(answers)),
        "response_class": Response,
        "responses": responses,
        "openapi_extra": extra,
    }


def _answer(description: str, entity: Schema | None, media_type: str = JSON) -> dict[str, Any]:
    if entity is None:
        return {"description": description}
    return {"description": description, "content": {media_type: {"schema": entity}}}
