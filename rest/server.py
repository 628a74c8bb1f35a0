"""The HTTP server: uvicorn on its own thread and event loop, one socket per listener.

HTTP is parsed by h11: uvicorn's other parser loses the bodies of Java's default HTTP client, which
asks for an upgrade to HTTP/2 (`Upgrade: h2c`) with each first request.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from connect_py.api.errors import ConfigError, ConnectError
from rest.http_connection import ConnectionLimits, HttpConnection, OncePerMinute, OpenConnections

logging.getLogger(
    "uvicorn.error"
).addFilter(  # Java's client offers an upgrade with each first request: nothing to warn of
    lambda record: record.funcName != "_unsupported_upgrade_warning"
)
logging.getLogger("uvicorn.error").addFilter(OncePerMinute("Invalid HTTP request received."))
logging.getLogger("asyncio").addFilter(OncePerMinute("socket.accept() out of system resource"))

START_SECONDS = 30.0
STOP_SECONDS = 10.0
BACKLOG = 128

_LISTENER = re.compile(
    r"(?P<protocol>[^:/]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*?)\]?:(?P<port>-?[0-9]+)"
)


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on; an empty host is every interface, port 0 any free one."""

    host: str
    port: int
    protocol: str = "http"

    @staticmethod
    def parse(text: str) -> Listener:
        """Parse `protocol://host:port`.

        Raises:
            ConfigError: Not of that form, or neither `http` nor `https`.
        """
        found = _LISTENER.fullmatch(text.strip())
        if found is None:
            raise ConfigError(
                "listeners", "Listener doesn't have the right format (protocol://hostname:port)."
            )
        protocol = found["protocol"].lower()
        if protocol not in ("http", "https"):
            raise ConfigError("listeners", 'Listener protocol must be either "http" or "https".')
        return Listener(found["host"], int(found["port"]), protocol)


class PortInUseError(ConnectError):
    """Another process listens on this address."""


@dataclass(frozen=True, slots=True)
class Site:
    """An application and the listeners that it answers on; those of `https` need the TLS
    context."""

    app: ASGIApp
    listeners: Sequence[Listener]
    tls: ssl.SSLContext | None = None


class RestServer:
    """Serves some sites until it is stopped. Start and stop from any thread, once each."""

    def __init__(self, sites: Sequence[Site], limits: ConnectionLimits | None = None) -> None:
        """Open the sockets at once, so that a port in use is known before anything else starts.

        Raises:
            PortInUseError: A listener's port is taken.
        """
        self._connections = OpenConnections(limits or ConnectionLimits())
        self._sockets: list[tuple[Listener, socket.socket]] = []
        self._servers: list[tuple[uvicorn.Server, list[socket.socket]]] = []
        try:
            for site in sites:
                for protocol in ("http", "https"):
                    self._open(
                        site,
                        [listener for listener in site.listeners if listener.protocol == protocol],
                    )
        except BaseException:
            self._close_sockets()
            raise
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)

    def _open(self, site: Site, listeners: Sequence[Listener]) -> None:
        if not listeners:
            return
        tls = None if listeners[0].protocol == "http" else site.tls
        sockets = []
        for listener in listeners:
            sockets.append(_bind(listener))
            self._sockets.append((listener, sockets[-1]))
        # Config wants the number of seconds between requests in whole ones, and hands on whatever
        # it is given.
        idle_seconds: Any = self._connections.limits.idle_seconds
        connection: Any = partial(HttpConnection, others=self._connections)
        config = uvicorn.Config(
            site.app,
            http=connection,
            backlog=BACKLOG,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=idle_seconds,
            timeout_graceful_shutdown=int(STOP_SECONDS),
            ssl_context_factory=None if tls is None else lambda _config, _default: tls,
        )
        self._servers.append((uvicorn.Server(config), sockets))

    @property
    def addresses(self) -> list[Listener]:
        """The listeners with the hosts and ports that they are bound to; those of `http` first in
        each site."""
        return [Listener(*_bound(sock), listener.protocol) for listener, sock in self._sockets]

    def start(self) -> None:
        """Serve; returns when the first request can be answered.

        Raises:
            ConnectError: The server did not come up.
        """
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(START_SECONDS / 0.01)):
            if self._started() or not self._thread.is_alive():
                break
            waited.wait(0.01)
        if not self._started():
            raise ConnectError("the REST server did not start; its log says why")

    def _started(self) -> bool:
        return all(server.started for server, _ in self._servers)

    def stop(self) -> None:
        """Finish the requests under way, within a deadline, and close the sockets."""
        for server, _ in self._servers:
            server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            for server, _ in self._servers:
                server.force_exit = True
            self._thread.join(STOP_SECONDS)
        self._close_sockets()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        await asyncio.gather(*(server.serve(sockets=sockets) for server, sockets in self._servers))

    def _close_sockets(self) -> None:
        for _, sock in self._sockets:
            sock.close()


def _bind(listener: Listener) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((listener.host, listener.port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise PortInUseError(
            f"cannot listen on {listener.host or '*'}:{listener.port}: {error.strerror}"
        ) from error
    return sock


def _bound(sock: socket.socket) -> tuple[str, int]:
    host, port = sock.getsockname()[:2]
    return str(host), int(port)
