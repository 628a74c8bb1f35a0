"""Connector configuration files, which `connect-standalone` accepts as arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from connect_py.api.errors import ConnectError
from connect_py.config.properties_file import read_properties
from connect_py.herder.herder import InitialState
from rest.errors import RestError
from rest.json_body import expect_object, optional_string, parse_json, string_map


@dataclass(frozen=True, slots=True)
class ConnectorFile:
    """A connector to create, as read from a file."""

    name: str
    config: Mapping[str, str | None]
    initial_state: InitialState | None = None

    @classmethod
    def read(cls, path: Path) -> ConnectorFile:
        """Read a file.

        It may be a flat JSON object with `name`, a JSON request to create a connector, or a
        properties file.

        Raises:
            OSError: The file cannot be read.
            ConnectError: The file contains no name, or two different names.
        """
        data = path.read_bytes()
        for form in (_flat, _create_request):
            try:
                return form(data, path)
            except RestError:
                continue  # try the next format
        return _named(dict(read_properties(path)), path)


def _flat(data: bytes, path: Path) -> ConnectorFile:
    return _named(string_map(parse_json(data)), path)


def _named(config: dict[str, str | None], path: Path) -> ConnectorFile:
    name = config.get("name")
    if name is None:
        raise ConnectError(
            f"Connector configuration at '{path}' is missing the mandatory 'name' configuration"
        )
    return ConnectorFile(name, config)


def _create_request(data: bytes, path: Path) -> ConnectorFile:
    members = expect_object(parse_json(data), "CreateConnectorRequest")
    name = (optional_string(members.get("name")) or "").strip()
    config = string_map(members.get("config"))
    if config.setdefault("name", name) != name:
        raise ConnectError(
            f"Connector name configuration in 'config' doesn't match the one specified in 'name' "
            f"at '{path}'"
        )
    return ConnectorFile(
        name, config, _initial_state(optional_string(members.get("initial_state")))
    )


def _initial_state(state: str | None) -> InitialState | None:
    if state is None:
        return None
    try:
        return InitialState[state.upper()]
    except KeyError as error:
        raise RestError(500, f"No enum constant {state}") from error
