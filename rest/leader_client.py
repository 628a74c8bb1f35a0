"""`LeaderClient`: the requests that a worker makes to the leader of its group by itself."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote

import httpx

from connect_py.api.errors import ConnectError
from connect_py.herder.leader_calls import Signer
from rest.errors import RestError
from rest.forwarding import check, empty_tls_context, request_headers, said, timeout, tls_for


class LeaderClient:
    """Satisfies `LeaderCalls`: calls wait for their answers, at most `FORWARD_SECONDS`."""

    def __init__(self, make_tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        """`make_tls` is asked when the leader's address begins with `https`."""
        self._make_tls = make_tls or empty_tls_context

    def put_task_configs(
        self, url: str, connector: str, configs: Sequence[Mapping[str, str]], sign: Signer
    ) -> None:
        body = json.dumps([dict(config) for config in configs]).encode()
        self._call(
            "POST", f"{url.rstrip('/')}/connectors/{quote(connector, safe='')}/tasks", body, sign
        )

    def request_stop(
        self, url: str, connector: str, start_number: int, reason: str, sign: Signer
    ) -> None:
        body = json.dumps({"start_number": start_number, "reason": reason}).encode()
        self._call(
            "PUT",
            f"{url.rstrip('/')}/connectors/{quote(connector, safe='')}/stop-request",
            body,
            sign,
        )

    def fence_zombies(self, url: str, connector: str, sign: Signer) -> None:
        self._call(
            "PUT", f"{url.rstrip('/')}/connectors/{quote(connector, safe='')}/fence", b"", sign
        )

    def _call(self, method: str, url: str, body: bytes, sign: Signer) -> None:
        headers = {**request_headers(body), **sign(body)}
        try:
            tls = tls_for(url, self._make_tls)
            with httpx.Client(verify=tls, trust_env=False, timeout=timeout()) as client:
                check(client.request(method, url, headers=headers, content=body))
        except httpx.HTTPError as error:
            raise ConnectError(f"the leader at {url} could not be asked: {said(error)}") from error
        except RestError as error:
            raise ConnectError(
                f"the leader refused: {error.message} (status {error.status})"
            ) from error
