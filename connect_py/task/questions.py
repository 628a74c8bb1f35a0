"""`Questions`: requests of a child process to the worker; each response is passed to the thread
that waits for it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, Final

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.task.messages import Answer, FromTask, Question

# time for a response that is already on its way while the child is being stopped
STOPPING_SECONDS: Final = 1.0


class TaskStoppedError(Exception):
    """A stop was requested during a wait. Leave everything unchanged, and end in order."""


class StoppedWhileWaitingError(TaskStoppedError, RetriableError):
    """A stop was requested during a wait on a thread of the plugin, which sees a retriable
    error.
    """


class RefusedError(ConnectError):
    """The worker has permanently rejected the request."""


class Questions:
    """Any thread may send requests. The thread that reads the pipe delivers the responses."""

    def __init__(self, send: Callable[[FromTask], None]) -> None:
        """Create the object. `send` sends messages to the worker and is thread-safe."""
        self._changed = threading.Condition()
        self._stopping = False
        self._numbers = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        self.send = send

    @property
    def stopping(self) -> bool:
        """Return True if a stop was requested."""
        return self._stopping

    def stop(self) -> None:
        """Request a stop."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def next_number(self) -> int:
        """Return the next request number."""
        return next(self._numbers)

    def ask(self, question: Question, timeout: float) -> Any:
        """Send a request to the worker and wait for the response, even while stopping.

        Raises:
            ConnectError: The worker returned an error or did not respond in time.
        """
        self.send(question)
        with self._changed:
            if not self._changed.wait_for(lambda: question.number in self._answers, timeout):
                raise ConnectError(
                    f"the worker did not respond to {type(question).__name__} within "
                    f"{timeout:.0f} s"
                )
        return self._take(question.number)

    def ask_patiently(self, question: Question, stopping_seconds: float = 0.0) -> Any:
        """Send a request and wait for the response without a timeout.

        Raises:
            ConnectError: The worker returned an error; RefusedError if it rejected the request.
            TaskStoppedError: A stop was requested, and no response arrived within
                `stopping_seconds`.
        """
        self.send(question)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or question.number in self._answers)
            if stopping_seconds and not self._changed.wait_for(
                lambda: question.number in self._answers, stopping_seconds
            ):
                raise StoppedWhileWaitingError(
                    f"stopped while waiting for the response to {type(question).__name__}"
                )
        if question.number not in self._answers:
            self.check()
        return self._take(question.number)

    def answered(self, question: Question) -> bool:
        """Return True and remove the response if the response to a request has arrived.

        Raises:
            ConnectError: The worker returned an error.
        """
        if question.number not in self._answers:
            return False
        self._take(question.number)
        return True

    def check(self) -> None:
        """Raise TaskStoppedError if a stop was requested."""
        if self._stopping:
            raise TaskStoppedError

    def answer(self, answer: Answer) -> None:
        """Deliver the response to a request."""
        with self._changed:
            self._answers[answer.number] = answer
            self._changed.notify_all()

    def _take(self, number: int) -> Any:
        with self._changed:
            answer = self._answers.pop(number)
        if answer.error is None:
            return answer.value
        if answer.retriable:
            raise RetriableError(answer.error)
        raise RefusedError(answer.error) if answer.refused else ConnectError(answer.error)
