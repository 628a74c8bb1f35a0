"""`Questions`: asks the worker over a child's pipe, and hands each answer to the thread that waits
for it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, Final

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.task.messages import Answer, FromTask, Question

# for an answer that the worker has already, while the child is being stopped
STOPPING_SECONDS: Final = 1.0


class TaskStoppedError(Exception):
    """A stop was asked for while something was being waited for: leave everything as it is and end
    in order."""


class StoppedWhileWaitingError(TaskStoppedError, RetriableError):
    """The same on a thread of the plugin's own, which may take it for what it is to the plugin: not
    now."""


class RefusedError(ConnectError):
    """The worker says no, and will not say anything else."""


class Questions:
    """Any thread asks; the thread that reads the pipe answers."""

    def __init__(self, send: Callable[[FromTask], None]) -> None:
        """`send` takes messages to the worker, on any thread."""
        self._changed = threading.Condition()
        self._stopping = False
        self._numbers = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        self.send = send

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for."""
        return self._stopping

    def stop(self) -> None:
        """Ask for the end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def next_number(self) -> int:
        """A number for a question."""
        return next(self._numbers)

    def ask(self, question: Question, timeout: float) -> Any:
        """Send a question to the worker and wait for its answer, also while stopping.

        Raises:
            ConnectError: The worker answered with an error, or not in time.
        """
        self.send(question)
        with self._changed:
            if not self._changed.wait_for(lambda: question.number in self._answers, timeout):
                raise ConnectError(
                    f"the worker did not answer within {timeout:.0f} s: {type(question).__name__}"
                )
        return self._take(question.number)

    def ask_patiently(self, question: Question, stopping_seconds: float = 0.0) -> Any:
        """Send a question and wait for its answer however long it takes.

        Raises: ConnectError: The worker answered with an error; RefusedError if with a refusal.
            TaskStoppedError: A stop was asked for, and `stopping_seconds` later there was no
            answer.
        """
        self.send(question)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or question.number in self._answers)
            if stopping_seconds and not self._changed.wait_for(
                lambda: question.number in self._answers, stopping_seconds
            ):
                raise StoppedWhileWaitingError(
                    f"stopped while the worker was asked: {type(question).__name__}"
                )
        if question.number not in self._answers:
            self.check()
        return self._take(question.number)

    def answered(self, question: Question) -> bool:
        """Whether the answer to a question that was sent is there; if so, it is taken.

        Raises:
            ConnectError: The worker answered with an error.
        """
        if question.number not in self._answers:
            return False
        self._take(question.number)
        return True

    def check(self) -> None:
        """Raise TaskStoppedError if a stop was asked for."""
        if self._stopping:
            raise TaskStoppedError

    def answer(self, answer: Answer) -> None:
        """Take the answer to a question."""
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
