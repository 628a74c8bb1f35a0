"""The URL of a Spark Connect server, and what a worker needs to speak to one."""

from __future__ import annotations

import urllib.parse
from importlib.util import find_spec
from typing import Final

from connect_py.api.errors import ConfigError

_KEY: Final = "iceberg.spark.remote"
_DEFAULT_PORT: Final = 15002
_MODULES: Final = ("grpc", "grpc_status", "pandas", "zstandard")  # of the extra `spark-connect`


def check_installed() -> None:
    """Return if PySpark's client of Spark Connect can be imported.

    Raises:
        ConfigError: It cannot. The text says what to install.
    """
    missing = [module for module in _MODULES if find_spec(module) is None]
    if missing:
        raise ConfigError(
            _KEY,
            "needs PySpark's client of Spark Connect, which is not installed: run "
            f"pip install 'connect-py[spark-connect]' on each worker (missing: {', '.join(missing)})",
        )


def remote_address(url: str) -> str:
    """Host and port of `sc://host:port/;name=value;...`, for messages: the rest may be secret.

    Raises:
        ConfigError: The URL is not of that form.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port or _DEFAULT_PORT
    except ValueError:
        raise ConfigError(_KEY, "is not a Spark Connect URL, sc://host:port/;name=value") from None
    path, _, parameters = parts.path.partition(";")
    if parts.scheme != "sc" or not host or path not in ("", "/") or parts.query or "#" in url or parts.username:
        raise ConfigError(_KEY, "is not a Spark Connect URL, sc://host:port/;name=value")
    if any(not pair.partition("=")[0] or "=" not in pair for pair in filter(None, parameters.split(";"))):
        raise ConfigError(_KEY, "has a parameter that is not of the form name=value")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
