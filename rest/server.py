"""The HTTP server: uvicorn on its own thread and event loop, one socket per listener.

HTTP is parsed by h11: uvicorn's other parser loses the bodies of Java's default HTTP client, which asks for an upgrade
to HTTP/2 (`Upgrade: h2c`) with each first request.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from connect_py.api.errors import ConfigError, ConnectError

log = logging.getLogger(__name__)

START_SECONDS = 30.0
STOP_SECONDS = 10.0

_LISTENER = re.compile(r"(?P<protocol>[^:/]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*?)\]?:(?P<port>-?[0-9]+)")


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on; an empty host is every interface, port 0 any free one."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Listener:
        """Parse `protocol://host:port`.

        Raises:
            ConfigError: Not of that form, or not `http`.
        """
        found = _LISTENER.fullmatch(text.strip())
        if found is None:
            raise ConfigError("listeners", "Listener doesn't have the right format (protocol://hostname:port).")
        if found["protocol"].lower() not in ("http", "https"):
            raise ConfigError("listeners", 'Listener protocol must be either "http" or "https".')
        if found["protocol"].lower() == "https":
            raise ConfigError("listeners", "HTTPS listeners are not supported yet; put a TLS proxy in front")
        return Listener(found["host"], int(found["port"]))


class PortInUseError(ConnectError):
    """Another process listens on this address."""


class RestServer:
    """Serves one application on some listeners until it is stopped. Start and stop from any thread, once each."""

    def __init__(self, app: ASGIApp, listeners: Sequence[Listener]) -> None:
        """Open the sockets at once, so that a port in use is known before anything else starts.

        Raises:
            PortInUseError: A listener's port is taken.
        """
        self._sockets: list[socket.socket] = []
        try:
            for listener in listeners:
                self._sockets.append(_bind(listener))
        except BaseException:
            self._close_sockets()
            raise
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, http="h11", loop="asyncio", ws="none", lifespan="off", log_config=None, access_log=False,
                server_header=False, timeout_keep_alive=90, timeout_graceful_shutdown=int(STOP_SECONDS),
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name="rest", daemon=True)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each listener, as bound."""
        return [s.getsockname()[:2] for s in self._sockets]

    def start(self) -> None:
        """Serve; returns when the first request can be answered.

        Raises:
            ConnectError: The server did not come up.
        """
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(START_SECONDS / 0.01)):
            if self._server.started or not self._thread.is_alive():
                break
            waited.wait(0.01)
        if not self._server.started:
            raise ConnectError("the REST server did not start; its log says why")

    def stop(self) -> None:
        """Finish the requests under way, within a deadline, and close the sockets."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(STOP_SECONDS)
        self._close_sockets()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=self._sockets))

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            sock.close()


def _bind(listener: Listener) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((listener.host, listener.port))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise PortInUseError(f"cannot listen on {listener.host or '*'}:{listener.port}: {error.strerror}") from error
    return sock
