"""`read_request`: reads a connector file and describes its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from connect_py.api.errors import ConnectError

if TYPE_CHECKING:
    from connect_py.connector_file import ConnectorFile


def read_request(path: Path) -> ConnectorFile:
    """Read `{"name": …, "config": {…}}`, a flat JSON object with `name`, or a properties file.

    Raises:
        OSError: The file cannot be read.
        ConnectError: The file has none of these formats. The message names the line or the key.
    """
    from connect_py.connector_file import ConnectorFile

    if path.suffix == ".json":
        _check_json(path)
    file = ConnectorFile.read(path)
    if not file.config.get("connector.class"):
        raise ConnectError(f"{path}: connector.class is missing; it names the connector plugin")
    return file


def _check_json(path: Path) -> None:
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConnectError(f"{path}: invalid JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConnectError(f"{path}: expected an object with a name and a config")
    config = document.get("config", document)
    if not isinstance(config, dict):
        raise ConnectError(f"{path}: config: expected an object")
    nested = [key for key, value in config.items() if isinstance(value, dict | list)]
    if nested:
        raise ConnectError(
            f"{path}: {', '.join(nested)}: expected a string, not an object or an array"
        )
    if not (document.get("name") or config.get("name")):
        raise ConnectError(f"{path}: name is missing")
