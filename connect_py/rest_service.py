"""`RestService`: a worker's REST API, as configured by the worker's properties.

The properties specify listeners, TLS, users, headers, and the advertised URL.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from functools import cached_property
from typing import Final

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


class RestService:
    """Opens its sockets immediately and responds to requests after `start`."""

    def __init__(self, config: WorkerConfig, environment: Mapping[str, str] | None = None) -> None:
        """Read the properties and open the sockets.

        Raises:
            ConfigError: A property is invalid.
            PortInUseError: The port of a listener is in use.
        """
        self._config = config
        self._options = self._read_options(os.environ if environment is None else environment)
        listeners = [Listener.parse(listener) for listener in config["listeners"]]
        admin_listeners = [Listener.parse(listener) for listener in config["admin.listeners"] or ()]
        tls = self._server_tls(listeners, HTTPS_PREFIX)
        admin_tls = self._server_tls(admin_listeners, f"admin.{HTTPS_PREFIX}")
        self._site = Site(listeners, tls)
        try:
            self._admin_site = Site(admin_listeners, admin_tls)
        except BaseException:
            self._site.close()
            raise
        self._server: RestServer | None = None
        self.addresses = self._site.addresses  # http before https
        self.admin_addresses = self._admin_site.addresses

    def _read_options(self, environment: Mapping[str, str]) -> RestOptions:
        config = self._config
        auth = None
        for name in config["rest.extension.classes"]:
            if name.strip() not in (EXTENSION, EXTENSION.rpartition(".")[2]):
                # ignoring the extension would leave the API unprotected
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
        """Return the TLS properties for a listener.

        As in Java, they are the properties with the prefix if there are any, otherwise the worker's
        `ssl.` properties.
        """
        prefixed_props = with_prefix(self._config.props, prefix)
        if prefixed_props:
            return prefixed_props
        props = {key: value for key, value in self._config.props.items() if key.startswith("ssl.")}
        return {"ssl.endpoint.identification.algorithm": "https", **props}

    def _server_tls(self, listeners: list[Listener], prefix: str) -> ssl.SSLContext | None:
        if all(listener.protocol == "http" for listener in listeners):
            return None
        # reduces startup time by not importing cryptography, which most workers do not need
        from connect_py.tls.tls_context import server_context

        return server_context(self._tls_props(prefix))

    @cached_property
    def _client_tls(self) -> ssl.SSLContext:
        from connect_py.tls.tls_context import client_context

        return client_context(self._tls_props(HTTPS_PREFIX))

    @property
    def leader_calls(self) -> LeaderCalls:
        """Client for the herder's own requests to the leader of its group."""
        return LeaderClient(lambda: self._client_tls)

    @property
    def advertised_url(self) -> str:
        """URL at which other workers reach this worker, with a trailing slash.

        Raises:
            ConfigError: `rest.advertised.listener` is neither http nor https.
        """
        config = self._config
        protocol = (config["rest.advertised.listener"] or "").strip().lower()
        if protocol not in ("", "http", "https"):
            raise ConfigError("rest.advertised.listener", "must be http or https")
        has_http = any(listener.protocol == "http" for listener in self.addresses)
        protocol = protocol or ("http" if has_http else "https")
        bound = next(
            (listener for listener in self.addresses if listener.protocol == protocol),
            self.addresses[0],
        )
        host = config["rest.advertised.host.name"] or bound.host
        if host in EVERY_INTERFACE:
            host = _local_address()
        url_host = f"[{host}]" if ":" in host else host
        return f"{protocol}://{url_host}:{config['rest.advertised.port'] or bound.port}/"

    def start(self, herder: Herder) -> None:
        """Serve this herder, and return when the server accepts requests.

        Raises:
            ConnectError: The server did not start.
        """
        self._server = RestServer(
            [
                (self._site, create_app(herder, self._options)),
                (self._admin_site, create_admin_app(herder, self._options)),
            ]
        )
        self._server.start()

    def stop(self) -> None:
        """Finish pending requests within a deadline and close the sockets."""
        if self._server is not None:
            self._server.stop()
        self._site.close()
        self._admin_site.close()


def _local_address() -> str:
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError:
        return name
