"""`TaskConfigRequests`: requests task configurations from connectors and publishes them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Self, TypeAlias

from connect_py.api.config import Type, parse
from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connect_py.config.config_provider import ConfigResolver
from connect_py.error_handling.failed_record import stack_trace
from connect_py.futures import failed, settle
from connect_py.herder.connector_configs import without_nulls
from connect_py.herder.local_work.status_publisher import StatusPublisher
from connect_py.herder.local_work.work_plan import RequestedItems
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.model import State, TargetState
from connect_py.storage.config_store import ConfigStore
from connect_py.worker.worker import TooManyTasksError, Worker

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.25
LAST_RETRY_SECONDS = 60.0

PublishTaskConfigs: TypeAlias = Callable[[str, Sequence[Mapping[str, str]]], Future[None]]


@dataclass(frozen=True, slots=True)
class TaskLimit:
    """Maximum number of tasks for a connector."""

    max_tasks: int
    is_enforced: bool

    @classmethod
    def of(cls, config: Mapping[str, str], resolver: ConfigResolver) -> Self:
        """Return the limit for a connector with this unresolved configuration.

        Raises:
            ConfigError: A value is invalid.
        """
        # resolve only these keys, because a config provider may hang
        keys = ("tasks.max", "tasks.max.enforce")
        resolved = resolver.resolve({key: config[key] for key in keys if key in config})
        return cls(
            parse("tasks.max", resolved.get("tasks.max", "1"), Type.INT),
            parse("tasks.max.enforce", resolved.get("tasks.max.enforce", "true"), Type.BOOLEAN),
        )


@dataclass(slots=True, eq=False)
class _Request:
    """A pending request for a connector's task configurations."""

    config_offset: int
    is_outdated: bool = False  # True if the request must be repeated
    waiting: list[Future[None]] = field(default_factory=list)  # completed along with the request


class TaskConfigRequests:
    """Requests and publishes task configurations, with one request per connector at a time.

    Failed requests are retried. Used only on the herder's thread, which receives the responses
    through its queue.
    """

    def __init__(
        self,
        worker: Worker,
        store: ConfigStore,
        publisher: StatusPublisher,
        resolver: ConfigResolver,
        queue: RequestQueue,
        requested: RequestedItems,
        publish: PublishTaskConfigs,
    ) -> None:
        """Create the component. `publish` writes a task set to the config topic."""
        self._worker = worker
        self._store = store
        self._publisher = publisher
        self._resolver = resolver
        self._queue = queue
        self._requested = requested
        self._publish = publish
        self._requests: dict[str, _Request] = {}

    def request(self, name: str, retry_seconds: float = FIRST_RETRY_SECONDS) -> None:
        """Request task configurations from a running connector, and publish any changes."""
        state = self._store.snapshot()
        if (
            name not in state.configs
            or state.target_state(name) is not TargetState.STARTED
            or not self._requested.owns(name)
        ):
            return
        if name in self._requests:
            self._requests[name].is_outdated = True
            return
        request = self._requests[name] = _Request(state.config_offsets[name])
        try:
            config = without_nulls(state.configs[name])
            response = self._worker.task_configs(
                name, config, TaskLimit.of(config, self._resolver).max_tasks
            )
        except ConnectError as error:
            response = failed(error)
        response.add_done_callback(
            lambda ended: self._queue.put(
                partial(self._on_answer, name, request, ended, retry_seconds)
            )
        )

    def wait(self, name: str, outcome: Future[None]) -> None:
        """Complete `outcome` when no request for this connector is pending."""
        request = self._requests.get(name)
        if request is None:
            outcome.set_result(None)
        else:
            request.waiting.append(outcome)

    def drop(self, name: str) -> None:
        """Drop a pending request whose response is obsolete, and complete the waiting futures."""
        request = self._requests.pop(name, None)
        settle(request.waiting if request else (), None)

    def _on_answer(
        self,
        name: str,
        request: _Request,
        response: Future[list[dict[str, str]]],
        retry_seconds: float,
    ) -> None:
        if self._requests.get(name) is not request:
            return
        state = self._store.snapshot()
        is_current = (
            state.config_offsets.get(name, -1) == request.config_offset and not request.is_outdated
        )
        if not is_current or state.target_state(name) is not TargetState.STARTED:
            self._request_again(name, request)  # does nothing if the connector was deleted
            return
        error = response.exception()
        published = self._publish(name, response.result()) if error is None else failed(error)
        if published.done():
            self._finish(name, request, published, retry_seconds)
        else:
            published.add_done_callback(
                lambda ended: self._queue.put(
                    partial(self._finish, name, request, ended, retry_seconds)
                )
            )

    def _request_again(self, name: str, request: _Request) -> None:
        del self._requests[name]
        self.request(name)
        if name in self._requests:
            self._requests[name].waiting.extend(request.waiting)
        else:
            settle(request.waiting, None)

    def _finish(
        self, name: str, request: _Request, published: Future[None], retry_seconds: float
    ) -> None:
        """Complete a request after its result has been published or it has failed."""
        if self._requests.get(name) is not request:
            return
        if request.is_outdated:
            self._request_again(name, request)
            return
        del self._requests[name]
        error = published.exception()
        settle(request.waiting, error)
        is_stopped = self._store.snapshot().target_state(name) is TargetState.STOPPED
        if error is None or is_stopped or isinstance(error, NotFoundError):
            return  # published, or the connector is no longer running
        if isinstance(error, TooManyTasksError | ConfigError):
            log.error("connector %s failed: %s", name, error)
            self._publisher.on_state(name, State.FAILED, stack_trace(error))
            return
        log.error(
            "connector %s: failed to generate task configurations, retrying in %.2f s",
            name,
            retry_seconds,
            exc_info=error,
        )
        next_retry_seconds = min(2 * retry_seconds, LAST_RETRY_SECONDS)
        self._queue.put(partial(self.request, name, next_retry_seconds), retry_seconds)
