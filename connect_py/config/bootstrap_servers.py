"""Validation and resolution of `bootstrap.servers`, as in the Java clients."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Sequence
from typing import Final

from connect_py.api.errors import ConfigError

log = logging.getLogger(__name__)

UNRESOLVABLE: Final = "No resolvable bootstrap urls given in bootstrap.servers"
_HOST_AND_PORT: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]+)]?:([0-9]+)")
_PORTS: Final = 65_535


def hosts_and_ports(servers: Sequence[str]) -> list[tuple[str, int]]:
    """Parse entries of the form `host:port`, `[address]:port`, or `PROTOCOL://host:port`.

    Raises:
        ConfigError: An entry is invalid, or there are no entries.
    """
    addresses = []
    for server in filter(None, map(str.strip, servers)):
        match = _HOST_AND_PORT.fullmatch(server)
        if match is None:
            raise ConfigError("", f"Invalid url in bootstrap.servers: {server}")
        if int(match[2]) > _PORTS:
            raise ConfigError("", f"Invalid port in bootstrap.servers: {server}")
        addresses.append((match[1], int(match[2])))
    if not addresses:
        raise ConfigError("", UNRESOLVABLE)
    return addresses


def check_resolvable(servers: Sequence[str]) -> None:
    """Resolve the host names and log failures.

    One resolvable server is sufficient, because clients discover the other brokers from it.

    Raises:
        ConfigError: No server can be resolved, or an entry is invalid.
    """
    resolvable = [_is_resolvable(host, port) for host, port in hosts_and_ports(servers)]
    if not any(resolvable):
        raise ConfigError("", UNRESOLVABLE)


def _is_resolvable(host: str, port: int) -> bool:
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        log.warning("Couldn't resolve server %s:%d from bootstrap.servers: %s", host, port, error)
        return False
    return True
