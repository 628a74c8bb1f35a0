"""`RestClient`: client for a worker's REST API, used by commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from connect_py.api import rest_paths
from connect_py.api.errors import ConnectError, NotFoundError
from connect_py.api.rest_paths import path
from connect_py.clock import Clock, SystemClock

if TYPE_CHECKING:
    import ssl

    import httpx

CONNECT_SECONDS: Final = 5.0
# a worker aborts a request after 90 seconds and reports the operation that was in progress
REQUEST_SECONDS: Final = 100.0
# a request that is rejected because of a rebalance is retried for this long
CONFLICT_SECONDS: Final = 30.0
CONFLICT_PAUSE_SECONDS: Final = 0.5
_BODY_CHARACTERS: Final = 300  # displayed length of a response that is not from a worker
SILENCE_SECONDS: Final = 60.0  # timeout between progress lines; a worker sends one per second
_LINES: Final = "application/x-ndjson"
_EXISTS: Final = "already exists"


class WorkerUnreachableError(ConnectError):
    """No worker responds at the address."""


class RequestRefusedError(ConnectError):
    """The worker rejected a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status  # HTTP status code


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """Address of a worker, with credentials and certificates."""

    url: str
    user: str | None = None
    password: str = ""
    authorities: Path | None = None  # PEM file, or None for the system's certificate authorities
    certificate: Path | None = None  # PEM file with a private key and its certificates

    def tls(self) -> ssl.SSLContext | bool:
        """Return the TLS setting for `httpx`.

        Raises:
            ConfigError: A file cannot be read.
        """
        if not self.url.startswith("https:"):
            return False
        from connect_py.tls.tls_context import client_context

        props = {"ssl.endpoint.identification.algorithm": "https"}
        for store, file in (("truststore", self.authorities), ("keystore", self.certificate)):
            if file is not None:
                props |= {f"ssl.{store}.type": "PEM", f"ssl.{store}.location": str(file)}
        return client_context(props)


class RestClient:
    """Client for one worker. Use it as a context manager.

    Methods raise WorkerUnreachableError if no worker responds, and RequestRefusedError if the
    worker rejects the request. A request that is rejected because of a rebalance (409) is retried
    for 30 seconds.
    """

    def __init__(
        self,
        address: WorkerAddress,
        clock: Clock | None = None,
        *,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """Create the client. The first request opens a connection.

        Raises:
            ConfigError: A certificate file cannot be read.
        """
        import httpx

        self._address = address
        self._clock = clock or SystemClock()
        self._http = httpx.Client(
            verify=address.tls(),
            trust_env=False,
            auth=None if address.user is None else (address.user, address.password),
            headers={"accept": "application/json"},
            timeout=httpx.Timeout(request_seconds, connect=min(CONNECT_SECONDS, request_seconds)),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    # --- Worker

    @property
    def url(self) -> str:
        """Return the address of the worker."""
        return self._address.url.rstrip("/")

    def server(self) -> Mapping[str, str]:
        """Return the version, the commit, and the ID of the Kafka cluster."""
        info: Mapping[str, str] = self._json("GET", rest_paths.ROOT)
        return info

    def health(self) -> tuple[bool, str]:
        """Return True if the worker is healthy, otherwise False, and the worker's message."""
        response = self._request("GET", rest_paths.HEALTH)
        if response.status_code not in (200, 500, 503):
            self._check(response)
        return response.status_code == 200, str(_object(response).get("message") or response.text)

    def metrics(self, worker_id: str | None = None) -> str:
        """Return the Prometheus metrics of this worker or of a group member (`host:port`)."""
        base = self.url if worker_id is None else f"{self.url.partition('://')[0]}://{worker_id}"
        response = self._request("GET", rest_paths.METRICS, base=base)
        self._check(response)
        return response.text

    # --- Connectors

    def names(self) -> list[str]:
        """Return the names of all connectors, sorted."""
        return sorted(self._json("GET", rest_paths.CONNECTORS))

    def connectors(self) -> Mapping[str, Any]:
        """Return `info` and `status` of all connectors, keyed by name."""
        query = "?expand=info&expand=status"
        connectors: Mapping[str, Any] = self._json("GET", rest_paths.CONNECTORS + query)
        return connectors

    def info(self, name: str) -> Mapping[str, Any]:
        """Return the name, config, tasks, and type of a connector."""
        info: Mapping[str, Any] = self._json("GET", path(rest_paths.CONNECTOR, connector=name))
        return info

    def status(self, name: str) -> Mapping[str, Any] | None:
        """Return the states of a connector and its tasks, or None if it has no status yet."""
        response = self._request("GET", path(rest_paths.CONNECTOR_STATUS, connector=name))
        if response.status_code == 404 and "No status found" in response.text:
            return None
        self._check(response)
        return _object(response)

    def topics(self, name: str) -> list[str]:
        """Return the topics that a connector has used. Empty if the worker does not track them."""
        response = self._request("GET", path(rest_paths.CONNECTOR_TOPICS, connector=name))
        if response.status_code == 403:
            return []
        self._check(response)
        return sorted(_object(response)[name]["topics"])

    def validate(self, config: Mapping[str, str | None]) -> dict[str, list[str]]:
        """Return the errors in a configuration by key. Empty if the configuration is valid."""
        plugin = config.get("connector.class") or ""
        target = path(rest_paths.PLUGIN_VALIDATE, plugin=plugin)
        infos = self._json("PUT", target, dict(config))
        return {
            row["value"]["name"]: row["value"]["errors"]
            for row in infos["configs"]
            if row["value"]["errors"]
        }

    def create(
        self, name: str, config: Mapping[str, str | None], initial_state: str | None = None
    ) -> None:
        """Create a connector. The worker rejects an existing name with status 409."""
        body = {"name": name, "config": dict(config)}
        self._json(
            "POST",
            rest_paths.CONNECTORS,
            body if initial_state is None else {**body, "initial_state": initial_state},
        )

    def replace(self, name: str, config: Mapping[str, str | None]) -> None:
        """Set a connector's configuration, creating the connector if it does not exist."""
        self._json("PUT", path(rest_paths.CONNECTOR_CONFIG, connector=name), dict(config))

    def change_state(self, name: str, change: str) -> None:
        """Change the state of a connector. `change` is `pause`, `resume`, or `stop`."""
        template = {
            "pause": rest_paths.CONNECTOR_PAUSE,
            "resume": rest_paths.CONNECTOR_RESUME,
            "stop": rest_paths.CONNECTOR_STOP,
        }[change]
        self._json("PUT", path(template, connector=name))

    def restart(self, name: str, *, only_failed: bool) -> None:
        """Restart a connector and its tasks, or only the failed instances."""
        query = f"?includeTasks=true&onlyFailed={str(only_failed).lower()}"
        self._json("POST", path(rest_paths.CONNECTOR_RESTART, connector=name) + query)

    def restart_task(self, name: str, task: int) -> None:
        """Restart one task."""
        self._json("POST", path(rest_paths.TASK_RESTART, connector=name, task=task))

    def delete(self, name: str) -> None:
        """Delete a connector."""
        self._json("DELETE", path(rest_paths.CONNECTOR, connector=name))

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Return a connector's committed offsets, as objects with `partition` and `offset`."""
        target = path(rest_paths.CONNECTOR_OFFSETS, connector=name)
        offsets: list[dict[str, Any]] = self._json("GET", target)["offsets"]
        return offsets

    def alter_offsets(self, name: str, offsets: list[dict[str, Any]]) -> str:
        """Set offsets of a stopped connector and return the worker's message."""
        target = path(rest_paths.CONNECTOR_OFFSETS, connector=name)
        return str(self._json("PATCH", target, {"offsets": offsets})["message"])

    def reset_offsets(self, name: str) -> str:
        """Delete all offsets of a stopped connector and return the worker's message."""
        target = path(rest_paths.CONNECTOR_OFFSETS, connector=name)
        return str(self._json("DELETE", target)["message"])

    def operate(
        self,
        name: str,
        operation: str,
        arguments: Mapping[str, Any],
        progress: Callable[[str], None],
        worker_id: str | None = None,
    ) -> Any:
        """Call a connector's operation and wait for its result.

        See `connect_py.api.command.WorkerClient`.
        """
        target = path(rest_paths.CONNECTOR_OPERATION, connector=name, operation=operation)
        bases = (
            [self.url]
            if worker_id is None
            else [f"{self.url.partition('://')[0]}://{worker_id}", self.url]
        )
        for base in dict.fromkeys(bases):
            try:
                return self._operate(f"{base}{target}?progress=true", arguments, progress)
            except WorkerUnreachableError as error:
                if base == self.url or not isinstance(error.__cause__, _not_sent()):
                    raise
        raise AssertionError("returned or raised")

    def _operate(
        self, url: str, arguments: Mapping[str, Any], progress: Callable[[str], None]
    ) -> Any:
        """Call an operation and read its result, either directly or from a stream of JSON lines."""
        import httpx

        headers = {"accept": f"{_LINES}, application/json"}
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        try:
            with self._http.stream(
                "POST", url, json=dict(arguments), headers=headers, timeout=timeout
            ) as response:
                if not response.headers.get("content-type", "").startswith(_LINES):
                    response.read()
                    self._check_operation(response)
                    return _parsed(response)
                for line in response.iter_lines():
                    message = json.loads(line)
                    if "result" in message:
                        return message["result"]
                    if "error_code" in message:
                        raise RequestRefusedError(
                            message["error_code"], str(message.get("message"))
                        )
                    progress(str(message.get("progress", "")))
        except httpx.InvalidURL as error:
            raise WorkerUnreachableError(f"{url} is not a valid address: {error}") from error
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise WorkerUnreachableError(
                f"the connection to the worker at {url} failed: {reason}"
            ) from error
        except ValueError as error:
            raise WorkerUnreachableError(
                f"the response from {url} is not from a Connect worker: {error}"
            ) from error
        raise WorkerUnreachableError(
            f"the worker at {url} closed the response before sending a result; it may be stopping"
        )

    def _check_operation(self, response: httpx.Response) -> None:
        try:
            self._check(response)
        except RequestRefusedError as error:
            if error.status == 404:
                raise NotFoundError(str(error)) from error
            raise

    # --- HTTP

    def _json(self, method: str, target: str, body: Any = None) -> Any:
        deadline = self._clock.monotonic() + CONFLICT_SECONDS
        while True:
            response = self._request(method, target, body)
            rebalancing = response.status_code == 409 and _EXISTS not in response.text
            if not rebalancing or self._clock.monotonic() >= deadline:
                break
            self._clock.sleep(CONFLICT_PAUSE_SECONDS)
        self._check(response)
        return _parsed(response) if response.content else None

    def _request(
        self, method: str, target: str, body: Any = None, base: str | None = None
    ) -> httpx.Response:
        import httpx

        address = base or self.url
        try:
            return self._http.request(method, address + target, json=body)
        except httpx.InvalidURL as error:
            raise WorkerUnreachableError(f"{address} is not a valid address: {error}") from error
        except httpx.TimeoutException as error:
            raise WorkerUnreachableError(
                f"the worker at {address} did not respond in time"
            ) from error
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise WorkerUnreachableError(
                f"no worker responds at {address}: {reason}. Set the address with --url or "
                "CONNECT_PY_URL"
            ) from error

    def _check(self, response: httpx.Response) -> None:
        if response.status_code < 300:
            return
        if response.status_code == 401:
            raise RequestRefusedError(
                401, "the worker rejected the credentials: set --user or CONNECT_PY_USER"
            )
        message = _object(response).get("message") if "error_code" in response.text else None
        if not message:
            message = f"{response.request.url} returned {response.status_code}: {response.text}"
            message = message[:_BODY_CHARACTERS]
        raise RequestRefusedError(response.status_code, str(message))


def _not_sent() -> tuple[type[Exception], ...]:
    """Return the error classes that indicate that a request did not reach a worker."""
    import httpx

    return (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL)


def _parsed(response: httpx.Response) -> Any:
    try:
        return response.json()
    except json.JSONDecodeError as error:
        raise WorkerUnreachableError(
            f"the response from {response.request.url} is not from a Connect worker: "
            f"{response.text[:_BODY_CHARACTERS]}"
        ) from error


def _object(response: httpx.Response) -> dict[str, Any]:
    document = _parsed(response)
    return document if isinstance(document, dict) else {}
