"""`WorkerClient`: calls and notifications from a task or connector to its worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.service import WAIT_SECONDS, ServiceAddress, SharedService
from connect_py.task.messages import (
    AcquireService,
    FromTask,
    ReleaseService,
    RequestService,
    TaskCall,
)

# how long a child that is being stopped waits for a reply
_STOPPING_SECONDS: Final = 1.0


class TaskStoppedError(Exception):
    """Raised if a stop is requested during a wait. Callers exit without changing any state."""


class StoppedWhileWaitingError(TaskStoppedError, RetriableError):
    """Raised on a plugin's thread if a stop is requested during a wait.

    For the plugin, this is a retriable error.
    """


class WorkerClient:
    """Sends calls and notifications to the worker. Thread-safe.

    A stop request ends all waits on all threads, except waits in `call`.
    """

    def __init__(
        self,
        submit: Callable[[TaskCall], Future[Any]],
        notify: Callable[[FromTask], None],
    ) -> None:
        """Create the client.

        Args:
            submit: Sends a call to the worker and returns a future for the reply; thread-safe.
            notify: Sends a notification to the worker; thread-safe.
        """
        self._changed = threading.Condition()
        self._stopping = False
        self.submit = submit
        self.notify = notify

    @property
    def stopping(self) -> bool:
        """Return True if a stop was requested."""
        return self._stopping

    def stop(self) -> None:
        """Request a stop."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def check(self) -> None:
        """Raise TaskStoppedError if a stop was requested."""
        if self._stopping:
            raise TaskStoppedError

    def call(self, request: TaskCall, timeout: float) -> Any:
        """Send a request to the worker and wait for the reply, even while stopping.

        Raises:
            ConnectError: The worker returned an error or did not respond in time.
        """
        reply = self._submit(request)
        with self._changed:
            if not self._changed.wait_for(reply.done, timeout):
                raise ConnectError(
                    f"the worker did not respond to {type(request).__name__} within {timeout:.0f} s"
                )
        return result_of(reply)

    def call_until_stopped(self, request: TaskCall, stopping_seconds: float = 0.0) -> Any:
        """Send a request and wait for the reply without a timeout.

        Raises:
            ConnectError: The worker returned an error.
            TaskStoppedError: A stop was requested, and no reply arrived within `stopping_seconds`.
        """
        reply = self._submit(request)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or reply.done())
            if stopping_seconds and not self._changed.wait_for(reply.done, stopping_seconds):
                raise StoppedWhileWaitingError(
                    f"stopped while waiting for the response to {type(request).__name__}"
                )
        if not reply.done():
            self.check()
        return result_of(reply)

    def _submit(self, request: TaskCall) -> Future[Any]:
        reply = self.submit(request)
        reply.add_done_callback(self._notify_changed)
        return reply

    def _notify_changed(self, _: Future[Any]) -> None:
        with self._changed:
            self._changed.notify_all()


def result_of(reply: Future[Any]) -> Any:
    """Return the result of a completed call, or raise its error as a ConnectError."""
    try:
        return reply.result()
    except ConnectError:
        raise
    except Exception as error:
        raise ConnectError(str(error)) from error


class WorkerSharedServices:
    """Implements `connect_py.api.service.SharedServices`, which documents threading and errors."""

    def __init__(self, worker: WorkerClient, worker_props: Mapping[str, str]) -> None:
        self._worker = worker
        self._worker_props = worker_props

    def shared_service(
        self,
        service: SharedService,
        *,
        broken: int | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> ServiceAddress:
        address: ServiceAddress = self._worker.call_until_stopped(
            AcquireService(service, broken, timeout_seconds), _STOPPING_SECONDS
        )
        return address

    def request_shared_service(self, service: SharedService) -> None:
        self._worker.notify(RequestService(service))

    def release_shared_service(self, service: SharedService) -> None:
        self._worker.notify(ReleaseService(service))

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        return {key: value for key, value in self._worker_props.items() if key.startswith(prefix)}
