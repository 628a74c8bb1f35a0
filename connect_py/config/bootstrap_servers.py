"""`bootstrap.servers`, checked as Java's clients check it: the text when it is read, the names when
they are needed."""

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
    """Read each `host:port`, `[address]:port` or `PROTOCOL://host:port`.

    Raises:
        ConfigError: One is not written so, or there is none.
    """
    found = []
    for server in filter(None, map(str.strip, servers)):
        match = _HOST_AND_PORT.fullmatch(server)
        if match is None:
            raise ConfigError("", f"Invalid url in bootstrap.servers: {server}")
        if int(match[2]) > _PORTS:
            raise ConfigError("", f"Invalid port in bootstrap.servers: {server}")
        found.append((match[1], int(match[2])))
    if not found:
        raise ConfigError("", UNRESOLVABLE)
    return found


def check_resolvable(servers: Sequence[str]) -> None:
    """Look the names up, and log those that do not resolve. One is enough: it names the other
    brokers.

    Raises:
        ConfigError: There is not one, or one is written wrongly.
    """
    known = [_is_known(host, port) for host, port in hosts_and_ports(servers)]
    if not any(known):
        raise ConfigError("", UNRESOLVABLE)


def _is_known(host: str, port: int) -> bool:
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        log.warning("Couldn't resolve server %s:%d from bootstrap.servers: %s", host, port, error)
        return False
    return True
