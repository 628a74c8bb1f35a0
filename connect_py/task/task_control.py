"""`TaskControl`: requests from the worker to a running task, and messages from the task."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from connect_py.model import TargetState
from connect_py.task.messages import FromTask, TaskCall
from connect_py.task.worker_client import WorkerClient


class TaskControl(WorkerClient):
    """Passes the worker's requests to a running task.

    The thread that reads the channel stores the requests, and the task's thread reads them.
    """

    def __init__(
        self,
        target: TargetState,
        submit: Callable[[TaskCall], Future[Any]],
        notify: Callable[[FromTask], None],
    ) -> None:
        super().__init__(submit, notify)
        self._target = target

    @property
    def target(self) -> TargetState:
        """Return the latest target state."""
        return self._target

    def set_target(self, target: TargetState) -> None:
        """Set a new target state."""
        with self._changed:
            self._target = target
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for `seconds` seconds or until a stop is requested.

        Raises:
            TaskStoppedError: A stop was requested.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)
        self.check()

    def wait_while_paused(self) -> None:
        """Wait until the target state is STARTED or a stop is requested."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._target is TargetState.STARTED)
