"""REST paths that begin with `/connectors`."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

from fastapi import APIRouter, Request, Response

from connect_py.api import rest_paths
from connect_py.api.errors import NotFoundError
from connect_py.herder.herder import (
    Config,
    ConnectorInfo,
    ConnectorStatus,
    Created,
    Herder,
    InitialState,
)
from connect_py.model import ConnectorTaskId
from rest import deadline, entities
from rest.description import FLAG, TEXTS, array_of, map_of, ref
from rest.errors import RestError
from rest.json_body import check_fields, expect_object, optional_string, parse_json, string_map
from rest.location import location_of
from rest.routers.path import flag, name_in, task_in
from rest.routers.routes import Routes

_CREATE = "org.apache.kafka.connect.runtime.rest.entities.CreateConnectorRequest"
_INITIAL_STATE = f"{_CREATE}$InitialState"
# maximum wait for a new connector's first status; until there is one, Java returns 404
FIRST_STATUS_SECONDS = 5.0
_POLL_SECONDS = 0.05  # interval between attempts to read a status


def router(herder: Herder) -> APIRouter:
    route = Routes()
    for declare in (_connectors, _configs, _states, _tasks, _topics):
        declare(route, herder)
    return route.router


def _connectors(route: Routes, herder: Herder) -> None:
    @route(
        "GET",
        rest_paths.CONNECTORS,
        "Connector names; ?expand=status&expand=info adds their states and configurations",
        {200: {"oneOf": [TEXTS, map_of(ref("ExpandedConnector"))]}},
        query={"expand": array_of({"type": "string", "enum": ["status", "info"]})},
    )
    async def list_connectors(request: Request) -> Response:
        await deadline.state_read(herder)
        names = herder.connectors()
        if "expand" not in request.query_params:
            return entities.json_response(names)
        expansions = [e for e in request.query_params.getlist("expand") if e in ("status", "info")]
        infos = (
            {name: herder.connector_info(name) for name in names} if "info" in expansions else {}
        )
        connectors: dict[str, dict[str, Any]] = {}
        for name in names:
            members: dict[str, Any] = {}
            for expansion in expansions:
                if expansion == "info":
                    members["info"] = await _info(herder, infos[name])
                elif (status := _status(herder, name)) is not None:
                    members["status"] = status
            # a new connector is not listed until it has a status
            if "status" in members or "status" not in expansions:
                connectors[name] = members
        return entities.json_response(connectors)

    @route(
        "POST",
        rest_paths.CONNECTORS,
        "Create a connector",
        {201: ref("ConnectorInfo")},
        body=ref("CreateConnectorRequest"),
        forwarded=True,
    )
    async def create_connector(request: Request) -> Response:
        members = expect_object(parse_json(await request.body()), _CREATE)
        check_fields(members, _CREATE, "name", "config", "initial_state")
        initial_state = _initial_state(optional_string(members.get("initial_state")))
        name = trimmed(optional_string(members.get("name")) or "")
        config = _with_name(string_map(members.get("config")), name)
        created = await deadline.answer(
            herder, herder.put_connector(name, config, replace=False, initial_state=initial_state)
        )
        return _created(request, name, created)

    @route(
        "GET",
        rest_paths.CONNECTOR,
        "Configuration and tasks of a connector",
        {200: ref("ConnectorInfo")},
        refusals=[404],
    )
    async def get_connector(request: Request) -> Response:
        info = await deadline.answer(herder, herder.connector_info(name_in(request)))
        return entities.json_response(entities.connector_info(info))

    @route(
        "DELETE",
        rest_paths.CONNECTOR,
        "Delete a connector, but retain its committed offsets",
        {204: None},
        refusals=[404],
        forwarded=True,
    )
    async def delete_connector(request: Request) -> Response:
        await deadline.answer(herder, herder.delete_connector(name_in(request)))
        return entities.empty_response(204)


def _configs(route: Routes, herder: Herder) -> None:
    @route(
        "GET",
        rest_paths.CONNECTOR_CONFIG,
        "Configuration of a connector with unresolved placeholders",
        {200: ref("StoredConfig")},
        refusals=[404],
    )
    async def get_config(request: Request) -> Response:
        info = await deadline.answer(herder, herder.connector_info(name_in(request)))
        return entities.json_response(dict(info.config))

    @route(
        "PUT",
        rest_paths.CONNECTOR_CONFIG,
        "Create a connector or replace its configuration",
        {200: ref("ConnectorInfo"), 201: ref("ConnectorInfo")},
        body=ref("Config"),
        forwarded=True,
    )
    async def put_config(request: Request) -> Response:
        name = name_in(request)
        config = _with_name(string_map(parse_json(await request.body())), name)
        return _created(
            request,
            name,
            await deadline.answer(herder, herder.put_connector(name, config, replace=True)),
        )

    @route(
        "PATCH",
        rest_paths.CONNECTOR_CONFIG,
        "Change some configuration keys; null removes a key",
        {200: ref("ConnectorInfo")},
        body=ref("Config"),
        refusals=[404],
        forwarded=True,
    )
    async def patch_config(request: Request) -> Response:
        name = name_in(request)
        body = parse_json(await request.body())
        if body is None:
            # for an unknown connector, 404 takes precedence over an error in the body
            await deadline.answer(herder, herder.connector_info(name))
        info = await deadline.answer(herder, herder.patch_connector(name, string_map(body)))
        return entities.json_response(entities.connector_info(info))


def _states(route: Routes, herder: Herder) -> None:
    @route(
        "GET",
        rest_paths.CONNECTOR_STATUS,
        "States of a connector and its tasks",
        {200: ref("ConnectorStateInfo")},
        refusals=[404],
    )
    async def get_status(request: Request) -> Response:
        name = name_in(request)
        await deadline.state_read(herder)
        return entities.json_response(entities.connector_status(await _first_status(herder, name)))

    @route(
        "POST",
        rest_paths.CONNECTOR_RESTART,
        "Restart a connector, its tasks, or its failed instances",
        {204: None, 202: ref("ConnectorStateInfo")},
        query={"includeTasks": FLAG, "onlyFailed": FLAG},
        refusals=[404],
        forwarded=True,
    )
    async def restart_connector(request: Request) -> Response:
        name = name_in(request)
        include_tasks, only_failed = flag(request, "includeTasks"), flag(request, "onlyFailed")
        if not include_tasks and not only_failed:
            await deadline.answer(herder, herder.restart_connector(name))
            return entities.empty_response(204)
        plan = herder.restart_connector_and_tasks(
            name, include_tasks=include_tasks, only_failed=only_failed
        )
        return entities.json_response(
            entities.connector_status(await deadline.answer(herder, plan)), 202
        )

    @route(
        "PUT",
        rest_paths.CONNECTOR_PAUSE,
        "Pause a connector; its tasks retain their partitions but receive no records",
        {202: None},
        refusals=[404],
    )
    async def pause_connector(request: Request) -> Response:
        name = name_in(request)
        await deadline.state_read(herder)
        await deadline.call(herder, lambda: herder.pause_connector(name))
        return entities.empty_response(202)

    @route(
        "PUT",
        rest_paths.CONNECTOR_RESUME,
        "Resume a paused or stopped connector",
        {202: None},
        refusals=[404],
    )
    async def resume_connector(request: Request) -> Response:
        name = name_in(request)
        await deadline.state_read(herder)
        await deadline.call(herder, lambda: herder.resume_connector(name))
        return entities.empty_response(202)

    @route(
        "PUT",
        rest_paths.CONNECTOR_STOP,
        "Stop a connector; its tasks are removed, and its offsets can be changed",
        {204: None},
        refusals=[404],
        forwarded=True,
    )
    async def stop_connector(request: Request) -> Response:
        await deadline.answer(herder, herder.stop_connector(name_in(request)))
        return entities.empty_response(204)


def _tasks(route: Routes, herder: Herder) -> None:
    @route(
        "GET",
        rest_paths.TASKS,
        "Task configurations of a connector",
        {200: array_of(ref("TaskInfo"))},
        refusals=[404],
    )
    async def get_tasks(request: Request) -> Response:
        infos = await deadline.answer(herder, herder.task_infos(name_in(request)))
        return entities.json_response([entities.task_info(i) for i in infos])

    @route(
        "GET",
        rest_paths.TASK_STATUS,
        "State of a task",
        {200: ref("TaskState")},
        refusals=[404],
    )
    async def get_task_status(request: Request) -> Response:
        id_ = ConnectorTaskId(name_in(request), task_in(request))
        await deadline.state_read(herder)
        return entities.json_response(entities.task_state(id_.task, herder.task_status(id_)))

    @route(
        "POST",
        rest_paths.TASK_RESTART,
        "Restart a task",
        {204: None},
        refusals=[404],
        forwarded=True,
    )
    async def restart_task(request: Request) -> Response:
        await deadline.answer(
            herder, herder.restart_task(ConnectorTaskId(name_in(request), task_in(request)))
        )
        return entities.empty_response(204)


def _topics(route: Routes, herder: Herder) -> None:
    @route(
        "GET",
        rest_paths.CONNECTOR_TOPICS,
        "Topics used since the last reset; empty for an unknown connector",
        {200: ref("ActiveTopics")},
        refusals=[403, 404],
    )
    async def get_topics(request: Request) -> Response:
        name = name_in(request)
        await deadline.state_read(herder)
        return entities.json_response({name: {"topics": herder.active_topics(name)}})

    @route(
        "PUT",
        rest_paths.CONNECTOR_TOPICS_RESET,
        "Reset the set of used topics",
        {202: None},
        refusals=[403, 404],
    )
    async def reset_topics(request: Request) -> Response:
        name = name_in(request)
        await deadline.state_read(herder)
        await deadline.call(herder, lambda: herder.reset_active_topics(name))
        return entities.empty_response(202)


async def _first_status(herder: Herder, name: str) -> ConnectorStatus:
    """Return a connector's status. If a new connector has none yet, wait briefly for it."""
    deadline_time = asyncio.get_running_loop().time() + FIRST_STATUS_SECONDS
    while True:
        try:
            return herder.connector_status(name)
        except NotFoundError:
            if name not in herder.connectors() or asyncio.get_running_loop().time() > deadline_time:
                raise
        await asyncio.sleep(_POLL_SECONDS)


def _status(herder: Herder, name: str) -> Any:
    try:
        return entities.connector_status(herder.connector_status(name))
    except NotFoundError:
        return None


async def _info(herder: Herder, future: Future[ConnectorInfo]) -> Any:
    try:
        return entities.connector_info(await deadline.answer(herder, future))
    except NotFoundError:
        return None  # deleted in the meantime


def _created(request: Request, name: str, outcome: Created) -> Response:
    entity = entities.connector_info(outcome.info)
    if not outcome.created:
        return entities.json_response(entity)
    return entities.json_response(entity, 201, location_of(request, name))


def trimmed(name: str) -> str:
    """Return a name without surrounding whitespace and control characters, like Java's `trim`."""
    return name.strip("".join(map(chr, range(0x21))))


def _with_name(config: Config, name: str) -> dict[str, str | None]:
    """Return the configuration with the connector's name.

    Raises:
        RestError: 400 if the configuration has another name.
    """
    if config.get("name") is not None and config["name"] != name:
        raise _mismatch(config["name"], name)
    return {**config, "name": name}


def _mismatch(config_name: str | None, name: str) -> RestError:
    return RestError(
        400,
        f"Connector name configuration ({config_name}) doesn't match connector name in the URL "
        f"({name})",
    )


def _initial_state(name: str | None) -> InitialState | None:
    if name is None:
        return None
    try:
        return InitialState(name.upper())
    except ValueError as error:
        raise RestError(
            500,
            f"Cannot construct instance of `{_INITIAL_STATE}`, problem: "
            f"No enum constant {_INITIAL_STATE.replace('$', '.')}.{name.upper()}",
        ) from error
