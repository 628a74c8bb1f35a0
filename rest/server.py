"""`RestServer`: uvicorn on a dedicated thread and event loop, with one socket per listener.

HTTP is parsed with h11, because uvicorn's other parser loses request bodies from Java's default
HTTP client, which requests an upgrade to HTTP/2 (`Upgrade: h2c`) with its first request.
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

# Upgrade requests from Java's HTTP client are not worth a warning.
logging.getLogger("uvicorn.error").addFilter(
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
    """Address to listen on. An empty host means all interfaces, and port 0 means any free port."""

    host: str
    port: int
    protocol: str = "http"

    @staticmethod
    def parse(text: str) -> Listener:
        """Parse `protocol://host:port`.

        Raises:
            ConfigError: The value does not have this format, or the protocol is not supported.
        """
        match = _LISTENER.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                "listeners", "Listener doesn't have the right format (protocol://hostname:port)."
            )
        protocol = match["protocol"].lower()
        if protocol not in ("http", "https"):
            raise ConfigError("listeners", 'Listener protocol must be either "http" or "https".')
        return Listener(match["host"], int(match["port"]), protocol)


class PortInUseError(ConnectError):
    """Another process is listening on this address."""


class Site:
    """An application's open sockets, for several listeners that share a TLS context."""

    def __init__(self, listeners: Sequence[Listener], tls: ssl.SSLContext | None = None) -> None:
        """Open the sockets. `https` listeners require a TLS context.

        Raises:
            PortInUseError: The port of a listener is in use.
        """
        self.tls = tls
        self._sockets: list[tuple[Listener, socket.socket]] = []
        try:
            for listener in sorted(listeners, key=lambda listener: listener.protocol):
                self._sockets.append((listener, _bind(listener)))
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self) -> list[Listener]:
        """Return the listeners with their bound hosts and ports; `http` listeners first."""
        return [Listener(*_bound(sock), listener.protocol) for listener, sock in self._sockets]

    def sockets(self, protocol: str) -> list[socket.socket]:
        """Return the sockets of all listeners with this protocol."""
        return [sock for listener, sock in self._sockets if listener.protocol == protocol]

    def close(self) -> None:
        """Close the sockets."""
        for _, sock in self._sockets:
            sock.close()


class RestServer:
    """Serves applications until it is stopped.

    `start` and `stop` may be called from any thread, once each. The sites are opened before the
    server is created, which detects port conflicts before anything else starts. The server closes
    the sites.
    """

    def __init__(
        self, sites: Sequence[tuple[Site, ASGIApp]], limits: ConnectionLimits | None = None
    ) -> None:
        """Create a server for these applications."""
        self._sites = [site for site, _ in sites]
        connections = OpenConnections(limits or ConnectionLimits())
        self._servers = [
            (_server(app, None if protocol == "http" else site.tls, connections), sockets)
            for site, app in sites
            for protocol in ("http", "https")
            if (sockets := site.sockets(protocol))
        ]
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)

    @property
    def addresses(self) -> list[Listener]:
        """Return the listeners of all sites with their bound hosts and ports."""
        return [address for site in self._sites for address in site.addresses]

    def start(self) -> None:
        """Start the server, and return when it can handle requests.

        Raises:
            ConnectError: The server did not start.
        """
        self._thread.start()
        pause = threading.Event()
        for _ in range(int(START_SECONDS / 0.01)):
            if self._started() or not self._thread.is_alive():
                break
            pause.wait(0.01)
        if not self._started():
            raise ConnectError("the REST server did not start; see its log for the reason")

    def _started(self) -> bool:
        return all(server.started for server, _ in self._servers)

    def stop(self) -> None:
        """Finish pending requests within a deadline, and close the sockets."""
        for server, _ in self._servers:
            server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            for server, _ in self._servers:
                server.force_exit = True
            self._thread.join(STOP_SECONDS)
        for site in self._sites:
            site.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        await asyncio.gather(*(server.serve(sockets=sockets) for server, sockets in self._servers))


def _server(
    app: ASGIApp, tls: ssl.SSLContext | None, connections: OpenConnections
) -> uvicorn.Server:
    # uvicorn declares an integer but accepts any number
    idle_seconds: Any = connections.limits.idle_seconds
    connection: Any = partial(HttpConnection, connections=connections)
    return uvicorn.Server(
        uvicorn.Config(
            app,
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
    )


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
