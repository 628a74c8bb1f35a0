"""`RestService`: the REST API of a worker as its properties want it: listeners, TLS, users,
headers, advertised URL."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from functools import cached_property
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from connect_py.api.config import with_prefix
from connect_py.api.errors import ConfigError
from connect_py.config.worker_config import WorkerConfig
from connect_py.herder.group.leader_calls import LeaderCalls
from connect_py.herder.herder import Herder
from connect_py.kafka.jaas_users import jaas_users
from connect_py.metrics.prometheus_text import NameFamily
from rest.app import RestOptions, create_admin_app, create_app
from rest.basic_auth import EXTENSION, BasicAuth
from rest.cross_origin import CrossOrigin
from rest.forwarding import Forwarder
from rest.leader_client import LeaderClient
from rest.response_headers import header_rules
from rest.server import Listener, RestServer, Site

HTTPS_PREFIX: Final = "listeners.https."
EVERY_INTERFACE: Final = ("0.0.0.0", "::", "")


class _LateApplication:
    """An ASGI application that is known only after its sockets are open: the herder must know their
    ports first."""

    application: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.application(scope, receive, send)


class RestService:
    """Opens its sockets at once; answers after `start`."""

    def __init__(self, config: WorkerConfig, environment: Mapping[str, str] | None = None) -> None:
        """Read the properties and open the sockets.

        Raises:
            ConfigError: A property is wrong.
            PortInUseError: A listener's port is taken.
        """
        self._config = config
        self._options = self._read_options(os.environ if environment is None else environment)
        listeners = [Listener.parse(text) for text in config["listeners"]]
        admin = [Listener.parse(text) for text in config["admin.listeners"] or ()]
        self._main, self._admin = _LateApplication(), _LateApplication()
        self._server = RestServer(
            [
                Site(self._main, listeners, self._server_tls(listeners, HTTPS_PREFIX)),
                Site(self._admin, admin, self._server_tls(admin, f"admin.{HTTPS_PREFIX}")),
            ]
        )
        bound = self._server.addresses
        self.addresses = bound[: len(listeners)]  # those of http first
        self.admin_addresses = bound[len(listeners) :]

    def _read_options(self, environment: Mapping[str, str]) -> RestOptions:
        config = self._config
        auth = None
        for name in config["rest.extension.classes"]:
            if name.strip() not in (EXTENSION, EXTENSION.rpartition(".")[2]):
                # Ignoring it would open an API that its owner believes protected.
                raise ConfigError(
                    "rest.extension.classes",
                    f"{name} is a Java class and cannot be loaded (known: {EXTENSION}); "
                    "protect the REST API with a proxy in front of it and remove this property",
                )
            auth = BasicAuth(jaas_users(environment))
        options = RestOptions(
            admin=config["admin.listeners"] is None,
            page=config["connect_py.ui.enabled"],
            origins=config["access.control.allow.origin"] or "",
            methods=config["access.control.allow.methods"] or "",
            headers=header_rules(config["response.http.headers.config"] or ""),
            auth=auth,
            forwarder=Forwarder(lambda: self._client_tls),
            metric_names=[NameFamily(name) for name in config["connect_py.metrics.names"]],
        )
        CrossOrigin.patterns(options.origins)
        return options

    def _tls_props(self, prefix: str) -> dict[str, str]:
        """The settings with this prefix, or the plain ones if there is none of them: Java's
        rule."""
        own = with_prefix(self._config.props, prefix)
        if own:
            return own
        plain = {key: value for key, value in self._config.props.items() if key.startswith("ssl.")}
        return {"ssl.endpoint.identification.algorithm": "https", **plain}

    def _server_tls(self, listeners: list[Listener], prefix: str) -> ssl.SSLContext | None:
        if all(listener.protocol == "http" for listener in listeners):
            return None
        # needs cryptography, which few workers do
        from connect_py.tls.tls_context import (
            server_context,
        )

        return server_context(self._tls_props(prefix))

    @cached_property
    def _client_tls(self) -> ssl.SSLContext:
        from connect_py.tls.tls_context import client_context

        return client_context(self._tls_props(HTTPS_PREFIX))

    @property
    def leader_calls(self) -> LeaderCalls:
        """How the herder asks the leader of its group for something by itself."""
        return LeaderClient(lambda: self._client_tls)

    @property
    def advertised_url(self) -> str:
        """Where other workers reach this one, with a slash at the end.

        Raises:
            ConfigError: `rest.advertised.listener` names no protocol.
        """
        config = self._config
        asked = (config["rest.advertised.listener"] or "").strip().lower()
        if asked not in ("", "http", "https"):
            raise ConfigError("rest.advertised.listener", "must be http or https")
        has_http = any(listener.protocol == "http" for listener in self.addresses)
        protocol = asked or ("http" if has_http else "https")
        bound = next(
            (listener for listener in self.addresses if listener.protocol == protocol),
            self.addresses[0],
        )
        host = config["rest.advertised.host.name"] or bound.host
        if host in EVERY_INTERFACE:
            host = _own_address()
        shown = f"[{host}]" if ":" in host else host
        return f"{protocol}://{shown}:{config['rest.advertised.port'] or bound.port}/"

    def start(self, herder: Herder) -> None:
        """Answer for this herder; returns when the first request can be answered.

        Raises:
            ConnectError: The server did not come up.
        """
        self._main.application = create_app(herder, self._options)
        self._admin.application = create_admin_app(herder, self._options)
        self._server.start()

    def stop(self) -> None:
        """Finish the requests under way, within a deadline, and close the sockets."""
        self._server.stop()


def _own_address() -> str:
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError:
        return name
