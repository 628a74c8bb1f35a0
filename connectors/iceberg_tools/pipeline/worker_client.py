"""`WorkerClient`: sends a pipeline's requests to the REST API of a worker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import httpx

from connect_py.api import rest_paths
from connect_py.api.errors import ConnectError
from connect_py.api.rest_paths import path

_TIMEOUT_SECONDS: Final = 100.0  # a worker may forward the request or validate plugins
_REASON_CHARACTERS: Final = 300
_CONFLICT: Final = 409  # a rebalance is in progress
_CONFLICT_PAUSE_SECONDS: Final = 1.0
_CONFLICT_SECONDS: Final = 30.0  # time limit for retries


@dataclass(frozen=True, slots=True)
class RunningConnector:
    """A connector on a worker."""

    name: str
    config: Mapping[str, str]  # references to config providers are unresolved
    status: Mapping[str, Any]  # in the form of the REST API; empty if there is no status yet


class WorkerClient(AbstractContextManager["WorkerClient"]):
    """A client for one worker. Use it in a `with` statement, which closes it.

    Every method raises a ConnectError if the worker does not respond or rejects the request.
    """

    def __init__(self, url: str) -> None:
        """Create a client.

        A user name and password in the URL are used for authentication. `self.url` omits them.

        Raises:
            ConnectError: The URL is invalid.
        """
        try:
            parsed_url = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise ConnectError(f"invalid worker URL: {error}") from error
        self.url = str(parsed_url.copy_with(userinfo=b""))
        login = (parsed_url.username, parsed_url.password) if parsed_url.userinfo else None
        self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, auth=login)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def connectors(self) -> dict[str, RunningConnector]:
        """Return all connectors by name, in alphabetical order."""
        # If one request asked for both entities, the worker would omit connectors without a status.
        infos, statuses = (
            self._ask("GET", f"{rest_paths.CONNECTORS}?expand={entity}")
            for entity in ("info", "status")
        )
        with self._expect_worker_response():
            statuses_by_name = statuses.json()
            return {
                name: RunningConnector(
                    name, each["info"]["config"], statuses_by_name.get(name, {}).get("status", {})
                )
                for name, each in sorted(infos.json().items())
            }

    def task_configs(self, connector: str) -> list[Mapping[str, str]]:
        """Return the configurations of a connector's tasks."""
        response = self._ask("GET", path(rest_paths.TASKS, connector=connector))
        with self._expect_worker_response():
            return [each["config"] for each in response.json()]

    def problems(self, connector: str, config: Mapping[str, str]) -> list[tuple[str, str]]:
        """Validate a configuration and return the errors as pairs of key and message."""
        target = path(rest_paths.PLUGIN_VALIDATE, plugin=config["connector.class"])
        response = self._ask("PUT", target, {**config, "name": connector})
        with self._expect_worker_response():
            values = [each["value"] for each in response.json()["configs"]]
            return [(value["name"], error) for value in values for error in value["errors"]]

    def put(self, connector: str, config: Mapping[str, str]) -> None:
        """Create a connector or change its configuration."""
        self._ask("PUT", path(rest_paths.CONNECTOR_CONFIG, connector=connector), dict(config))

    def delete(self, connector: str) -> None:
        """Delete a connector if it exists."""
        self._ask("DELETE", path(rest_paths.CONNECTOR, connector=connector), missing_is_fine=True)

    @contextmanager
    def _expect_worker_response(self) -> Iterator[None]:
        """Raise ConnectError if a response is not from a Connect worker."""
        try:
            yield
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConnectError(
                f"{self.url} does not respond like a Connect worker; check the URL"
            ) from error

    def _ask(
        self, method: str, target: str, content: object = None, *, missing_is_fine: bool = False
    ) -> httpx.Response:
        deadline = time.monotonic() + _CONFLICT_SECONDS
        while True:
            try:
                response = self._client.request(method, self.url + target, json=content)
            except httpx.HTTPError as error:
                raise ConnectError(
                    f"{self.url} does not respond: {error or type(error).__name__}"
                ) from error
            if response.status_code == _CONFLICT and time.monotonic() < deadline:
                time.sleep(_CONFLICT_PAUSE_SECONDS)
                continue
            if response.is_success or (
                missing_is_fine and response.status_code == httpx.codes.NOT_FOUND
            ):
                return response
            raise ConnectError(
                f"{method} {self.url}{target} failed with status {response.status_code}: "
                f"{_reason(response)}"
            )


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])[:_REASON_CHARACTERS]
    except (ValueError, KeyError, TypeError):  # not a worker's response
        return response.text[:_REASON_CHARACTERS]
