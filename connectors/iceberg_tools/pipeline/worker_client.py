"""`WorkerClient`: what a pipeline asks a worker over REST."""

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

_ANSWER_SECONDS: Final = 100.0  # a worker forwards to another one, and validates plugins
_REASON_CHARACTERS: Final = 300
_CONFLICT: Final = 409  # the group is about to share its work anew
_CONFLICT_PAUSE_SECONDS: Final = 1.0
_CONFLICT_SECONDS: Final = 30.0  # for so long a request is repeated


@dataclass(frozen=True, slots=True)
class RunningConnector:
    """A connector that a worker has."""

    name: str
    config: Mapping[str, str]  # placeholders of config providers unresolved
    status: Mapping[str, Any]  # as REST shows it; empty: not known yet


class WorkerClient(AbstractContextManager["WorkerClient"]):
    """Asks one worker; closed by `with`.

    Every method raises ConnectError if the worker does not answer, or refuses.
    """

    def __init__(self, url: str) -> None:
        """Prepare. A name and password in the URL log in; `self.url` is without them.

        Raises:
            ConnectError: It is no URL.
        """
        try:
            given = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise ConnectError(f"the worker's address is not one: {error}") from error
        self.url = str(given.copy_with(userinfo=b""))
        login = (given.username, given.password) if given.userinfo else None
        self._client = httpx.Client(timeout=_ANSWER_SECONDS, auth=login)

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
        """All connectors by name, in alphabetical order."""
        # Asked for both at once, a worker leaves out connectors that have no status yet.
        infos, statuses = (
            self._ask("GET", f"{rest_paths.CONNECTORS}?expand={entity}")
            for entity in ("info", "status")
        )
        with self._understood():
            known = statuses.json()
            return {
                name: RunningConnector(
                    name, each["info"]["config"], known.get(name, {}).get("status", {})
                )
                for name, each in sorted(infos.json().items())
            }

    def task_configs(self, connector: str) -> list[Mapping[str, str]]:
        """The configurations of a connector's tasks."""
        answer = self._ask("GET", path(rest_paths.TASKS, connector=connector))
        with self._understood():
            return [each["config"] for each in answer.json()]

    def problems(self, connector: str, config: Mapping[str, str]) -> list[tuple[str, str]]:
        """What the worker says against a configuration: keys and texts."""
        target = path(rest_paths.PLUGIN_VALIDATE, plugin=config["connector.class"])
        answer = self._ask("PUT", target, {**config, "name": connector})
        with self._understood():
            values = [each["value"] for each in answer.json()["configs"]]
            return [(value["name"], error) for value in values for error in value["errors"]]

    def put(self, connector: str, config: Mapping[str, str]) -> None:
        """Create a connector, or give it another configuration."""
        self._ask("PUT", path(rest_paths.CONNECTOR_CONFIG, connector=connector), dict(config))

    def delete(self, connector: str) -> None:
        """Delete a connector; one that is not there is no error."""
        self._ask("DELETE", path(rest_paths.CONNECTOR, connector=connector), missing_is_fine=True)

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Raises ConnectError if an answer is none of a worker."""
        try:
            yield
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConnectError(
                f"{self.url} answers, but not as a Connect worker does: is this its address?"
            ) from error

    def _ask(
        self, method: str, target: str, content: object = None, *, missing_is_fine: bool = False
    ) -> httpx.Response:
        deadline = time.monotonic() + _CONFLICT_SECONDS
        while True:
            try:
                answer = self._client.request(method, self.url + target, json=content)
            except httpx.HTTPError as error:
                raise ConnectError(
                    f"{self.url} does not answer: {error or type(error).__name__}"
                ) from error
            if answer.status_code == _CONFLICT and time.monotonic() < deadline:
                time.sleep(_CONFLICT_PAUSE_SECONDS)
                continue
            if answer.is_success or (
                missing_is_fine and answer.status_code == httpx.codes.NOT_FOUND
            ):
                return answer
            raise ConnectError(
                f"{method} {self.url}{target} answers {answer.status_code}: {_reason(answer)}"
            )


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])[:_REASON_CHARACTERS]
    except (ValueError, KeyError, TypeError):  # not a worker's answer
        return answer.text[:_REASON_CHARACTERS]
