"""`RestClient`: the REST API of a worker, for commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from connect_py.api.errors import ConnectError, NotFoundError
from connect_py.clock import Clock, SystemClock

if TYPE_CHECKING:
    import ssl

    import httpx

CONNECT_SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 100.0  # a worker gives a request up after 90 s, and says what it was doing
# how long a request is repeated that the worker refuses because of a rebalance
CONFLICT_SECONDS: Final = 30.0
CONFLICT_PAUSE_SECONDS: Final = 0.5
_TEXT_CHARACTERS: Final = 300  # of an answer that is no worker's
SILENCE_SECONDS: Final = 60.0  # between two lines of an operation; a worker sends one per second
_LINES: Final = "application/x-ndjson"
_EXISTS: Final = "already exists"


class WorkerUnreachableError(ConnectError):
    """No worker answers at the address."""


class RequestRefusedError(ConnectError):
    """The worker refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status  # of HTTP


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """Where a worker is, and as whom to ask it."""

    url: str
    user: str | None = None
    password: str = ""
    authorities: Path | None = None  # PEM; None: those of the system
    certificate: Path | None = None  # PEM: a key and its certificates

    def tls(self) -> ssl.SSLContext | bool:
        """What `httpx` takes.

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
    """Asks one worker; a context manager.

    Methods raise a `WorkerUnreachableError` when no worker answers, and a `RequestRefusedError`
    when it refuses. What it refuses because of a rebalance (409) is asked again for 30 seconds.
    """

    def __init__(
        self,
        address: WorkerAddress,
        clock: Clock | None = None,
        *,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """Nothing connects before the first request.

        Raises:
            ConfigError: A file of certificates cannot be read.
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

    # --- the worker

    @property
    def url(self) -> str:
        """The address of the worker that is asked."""
        return self._address.url.rstrip("/")

    def server(self) -> Mapping[str, str]:
        """Version, commit and cluster id."""
        found: Mapping[str, str] = self._json("GET", "/")
        return found

    def health(self) -> tuple[bool, str]:
        """Whether the worker can do its work, and its text about that."""
        answer = self._ask("GET", "/health")
        if answer.status_code not in (200, 500, 503):
            self._check(answer)
        return answer.status_code == 200, str(_object(answer).get("message") or answer.text)

    def metrics(self, worker_id: str | None = None) -> str:
        """Prometheus's text of this worker, or of the worker of its group with this `host:port`."""
        base = self.url if worker_id is None else f"{self.url.partition('://')[0]}://{worker_id}"
        answer = self._ask("GET", "/metrics", base=base)
        self._check(answer)
        return answer.text

    # --- connectors

    def names(self) -> list[str]:
        """The names of all connectors, sorted."""
        return sorted(self._json("GET", "/connectors"))

    def connectors(self) -> Mapping[str, Any]:
        """By name, `info` and `status` of all connectors."""
        found: Mapping[str, Any] = self._json("GET", "/connectors?expand=info&expand=status")
        return found

    def info(self, name: str) -> Mapping[str, Any]:
        """Name, config, tasks and type of a connector."""
        found: Mapping[str, Any] = self._json("GET", _path(name))
        return found

    def status(self, name: str) -> Mapping[str, Any] | None:
        """The states of a connector and its tasks; None while a new connector has none."""
        answer = self._ask("GET", _path(name, "status"))
        if answer.status_code == 404 and "No status found" in answer.text:
            return None
        self._check(answer)
        return _object(answer)

    def topics(self, name: str) -> list[str]:
        """The topics that a connector has used; none where the worker does not track them."""
        answer = self._ask("GET", _path(name, "topics"))
        if answer.status_code == 403:
            return []
        self._check(answer)
        return sorted(_object(answer)[name]["topics"])

    def validate(self, config: Mapping[str, str | None]) -> dict[str, list[str]]:
        """The errors of a configuration by key; empty if the worker accepts it."""
        plugin = config.get("connector.class") or ""
        found = self._json(
            "PUT", f"/connector-plugins/{quote(plugin, safe='')}/config/validate", dict(config)
        )
        return {
            row["value"]["name"]: row["value"]["errors"]
            for row in found["configs"]
            if row["value"]["errors"]
        }

    def create(
        self, name: str, config: Mapping[str, str | None], initial_state: str | None = None
    ) -> None:
        """Create a connector; refused with 409 if there is one of this name."""
        body = {"name": name, "config": dict(config)}
        self._json(
            "POST",
            "/connectors",
            body if initial_state is None else {**body, "initial_state": initial_state},
        )

    def replace(self, name: str, config: Mapping[str, str | None]) -> None:
        """Give a connector this configuration; creates it if there is none."""
        self._json("PUT", _path(name, "config"), dict(config))

    def change_state(self, name: str, change: str) -> None:
        """`pause`, `resume` or `stop` a connector."""
        self._json("PUT", _path(name, change))

    def restart(self, name: str, *, only_failed: bool) -> None:
        """Restart a connector and its tasks; `only_failed` leaves out what has not failed."""
        self._json(
            "POST", _path(name, f"restart?includeTasks=true&onlyFailed={str(only_failed).lower()}")
        )

    def restart_task(self, name: str, task: int) -> None:
        """Restart one task."""
        self._json("POST", _path(name, f"tasks/{task}/restart"))

    def delete(self, name: str) -> None:
        """Delete a connector."""
        self._json("DELETE", _path(name))

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """The committed offsets of a connector: `partition` and `offset` of each."""
        found: list[dict[str, Any]] = self._json("GET", _path(name, "offsets"))["offsets"]
        return found

    def alter_offsets(self, name: str, offsets: list[dict[str, Any]]) -> str:
        """Set offsets of a stopped connector; returns the worker's text."""
        return str(self._json("PATCH", _path(name, "offsets"), {"offsets": offsets})["message"])

    def reset_offsets(self, name: str) -> str:
        """Forget all offsets of a stopped connector; returns the worker's text."""
        return str(self._json("DELETE", _path(name, "offsets"))["message"])

    def operate(
        self,
        name: str,
        operation: str,
        arguments: Mapping[str, Any],
        progress: Callable[[str], None],
        worker_id: str | None = None,
    ) -> Any:
        """Call an operation of a connector and wait for its result. See
        `connect_py.api.command.WorkerClient`."""
        path = _path(name, f"operations/{quote(operation, safe='')}?progress=true")
        bases = (
            [self.url]
            if worker_id is None
            else [f"{self.url.partition('://')[0]}://{worker_id}", self.url]
        )
        for base in dict.fromkeys(bases):
            try:
                return self._operate(base + path, arguments, progress)
            except WorkerUnreachableError as error:
                if base == self.url or not isinstance(error.__cause__, _not_sent()):
                    raise
        raise AssertionError("returned or raised")

    def _operate(
        self, url: str, arguments: Mapping[str, Any], progress: Callable[[str], None]
    ) -> Any:
        """Send the request of an operation and read its response, which may be a stream of JSON
        lines."""
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
                f"{url} does not answer as a worker does: {error}"
            ) from error
        raise WorkerUnreachableError(
            f"the worker at {url} ended the response before the result: it may be stopping"
        )

    def _check_operation(self, response: httpx.Response) -> None:
        try:
            self._check(response)
        except RequestRefusedError as error:
            if error.status == 404:
                raise NotFoundError(str(error)) from error
            raise

    # --- HTTP

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        deadline = self._clock.monotonic() + CONFLICT_SECONDS
        while True:
            answer = self._ask(method, path, body)
            passes = answer.status_code == 409 and _EXISTS not in answer.text
            if not passes or self._clock.monotonic() >= deadline:
                break
            self._clock.sleep(CONFLICT_PAUSE_SECONDS)
        self._check(answer)
        return _parsed(answer) if answer.content else None

    def _ask(
        self, method: str, path: str, body: Any = None, base: str | None = None
    ) -> httpx.Response:
        import httpx

        address = base or self.url
        try:
            return self._http.request(method, address + path, json=body)
        except httpx.InvalidURL as error:
            raise WorkerUnreachableError(f"{address} is no address: {error}") from error
        except httpx.TimeoutException as error:
            raise WorkerUnreachableError(
                f"the worker at {address} does not answer in time"
            ) from error
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise WorkerUnreachableError(
                f"no worker answers at {address}: {reason}. Name one with --url or CONNECT_PY_URL"
            ) from error

    def _check(self, answer: httpx.Response) -> None:
        if answer.status_code < 300:
            return
        if answer.status_code == 401:
            raise RequestRefusedError(
                401, "the worker wants another user or password: --user or CONNECT_PY_USER"
            )
        said = _object(answer).get("message") if "error_code" in answer.text else None
        text = (
            str(said)
            if said
            else f"{answer.request.url} answers {answer.status_code}: {answer.text}"
        )
        raise RequestRefusedError(answer.status_code, text if said else text[:_TEXT_CHARACTERS])


def _not_sent() -> tuple[type[Exception], ...]:
    """Errors of requests that did not reach a worker."""
    import httpx

    return (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL)


def _path(name: str, rest: str = "") -> str:
    return f"/connectors/{quote(name, safe='')}" + (f"/{rest}" if rest else "")


def _parsed(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except json.JSONDecodeError as error:
        text = answer.text[:_TEXT_CHARACTERS]
        raise WorkerUnreachableError(
            f"{answer.request.url} is not answered by a worker: {text}"
        ) from error


def _object(answer: httpx.Response) -> dict[str, Any]:
    found = _parsed(answer)
    return found if isinstance(found, dict) else {}
