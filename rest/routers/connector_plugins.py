"""`/connector-plugins`: installed plugins, and validation of configurations."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from connect_py.api import rest_paths
from connect_py.api.errors import ConfigError
from connect_py.herder.herder import BadRequestError, Herder
from rest import deadline, entities
from rest.description import TEXT, array_of, ref
from rest.errors import RestError
from rest.json_body import parse_json, string_map
from rest.routers.path import flag, name_in
from rest.routers.routes import Routes

_BAD_REQUEST = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException"


def router(herder: Herder) -> APIRouter:
    route = Routes()

    @route(
        "GET",
        rest_paths.PLUGINS,
        "Installed plugins",
        {200: array_of(ref("PluginInfo"))},
        query={"connectorsOnly": {"type": "boolean", "default": True}},
    )
    async def list_plugins(request: Request) -> Response:
        infos = herder.plugins(connectors_only=flag(request, "connectorsOnly", default=True))
        return entities.json_response([entities.plugin_info(i) for i in infos])

    @route(
        "GET",
        rest_paths.PLUGIN_CONFIG,
        "Configuration keys of a plugin",
        {200: array_of(ref("ConfigKeyInfo"))},
        query={"version": TEXT},
        refusals=[404],
    )
    async def plugin_config(request: Request) -> Response:
        version = request.query_params.get("version")
        infos = await deadline.answer(
            herder, herder.plugin_config(name_in(request, "plugin"), version)
        )
        return entities.json_response([entities.config_key_info(i) for i in infos])

    @route(
        "PUT",
        rest_paths.PLUGIN_VALIDATE,
        "Validate a configuration",
        {200: ref("ConfigInfos")},
        body=ref("Config"),
        refusals=[404],
    )
    async def validate(request: Request) -> Response:
        plugin = name_in(request, "plugin")
        config = string_map(parse_json(await request.body()))
        class_name = config.get("connector.class")
        if class_name is not None and not _bare(class_name).endswith(_bare(plugin)):
            raise RestError(
                400, f"Included connector type {class_name} does not match request type {plugin}"
            )
        try:
            infos = await deadline.answer(herder, herder.validate(config), period=False)
        except BadRequestError as error:
            # Java does not unwrap this error here; clients interpret 500 as "could not validate".
            raise RestError(500, f"{_BAD_REQUEST}: {error}") from error
        except ConfigError as error:
            raise RestError(500, f"{error.java_name}: {error}") from error
        return entities.json_response(entities.config_infos(infos))

    return route.router


def _bare(name: str) -> str:
    return name.removesuffix("Connector")
