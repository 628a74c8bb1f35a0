"""`LeaderClient`: sends a worker's requests to the leader of its group."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping, Sequence

import httpx

from connect_py.api import rest_paths
from connect_py.api.errors import ConnectError
from connect_py.api.rest_paths import path
from connect_py.herder.group.leader_calls import Signer
from rest.errors import RestError
from rest.forwarding import check, empty_tls_context, message_of, request_headers, timeout, tls_for


class LeaderClient:
    """Implements `LeaderCalls`. Calls wait up to `FORWARD_SECONDS` for the response."""

    def __init__(self, make_tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        """Create a client. `make_tls` creates a TLS context if the leader's URL uses `https`."""
        self._make_tls = make_tls or empty_tls_context

    def put_task_configs(
        self, url: str, connector: str, configs: Sequence[Mapping[str, str]], sign: Signer
    ) -> None:
        body = json.dumps([dict(config) for config in configs]).encode()
        self._call("POST", url, path(rest_paths.TASKS, connector=connector), body, sign)

    def request_stop(
        self, url: str, connector: str, start_number: int, reason: str, sign: Signer
    ) -> None:
        body = json.dumps({"start_number": start_number, "reason": reason}).encode()
        target = path(rest_paths.CONNECTOR_STOP_REQUEST, connector=connector)
        self._call("PUT", url, target, body, sign)

    def fence_zombies(self, url: str, connector: str, sign: Signer) -> None:
        self._call("PUT", url, path(rest_paths.CONNECTOR_FENCE, connector=connector), b"", sign)

    def _call(self, method: str, leader: str, target: str, body: bytes, sign: Signer) -> None:
        headers = {**request_headers(body), **sign(body)}
        url = leader.rstrip("/") + target
        try:
            tls = tls_for(url, self._make_tls)
            with httpx.Client(verify=tls, trust_env=False, timeout=timeout()) as client:
                check(client.request(method, url, headers=headers, content=body))
        except httpx.HTTPError as error:
            raise ConnectError(
                f"the leader at {url} cannot be reached: {message_of(error)}"
            ) from error
        except RestError as error:
            raise ConnectError(
                f"the leader rejected the request: {error.message} (status {error.status})"
            ) from error
