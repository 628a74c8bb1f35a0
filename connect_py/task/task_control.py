"""`TaskControl`: what was asked of a running task, seen from its loop; and where its loop sends news."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from connect_py.api.errors import ConnectError
from connect_py.model import TargetState
from connect_py.task.messages import Answer, FromTask, Question


class TaskStoppedError(Exception):
    """A stop was asked for while something was being waited for: leave everything as it is and end in order."""


class RefusedError(ConnectError):
    """The worker says no, and will not say anything else."""


class TaskControl:
    """Set by the thread that reads the pipe, read by the task thread."""

    def __init__(self, target: TargetState, send: Callable[[FromTask], None]) -> None:
        self._changed = threading.Condition()
        self._target = target
        self._stopping = False
        self._numbers = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        self.send = send

    @property
    def target(self) -> TargetState:
        """The latest target state."""
        return self._target

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for."""
        return self._stopping

    def set_target(self, target: TargetState) -> None:
        """Take a new target state."""
        with self._changed:
            self._target = target
            self._changed.notify_all()

    def stop(self) -> None:
        """Ask for the end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait that long, or until a stop or a new target state; TaskStoppedError after a stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)
        self.check()

    def wait_while_paused(self) -> None:
        """Return once the target is not PAUSED, or a stop was asked for."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._target is TargetState.STARTED)

    def check(self) -> None:
        """Raise TaskStoppedError if a stop was asked for."""
        if self._stopping:
            raise TaskStoppedError

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
                raise ConnectError(f"the worker did not answer within {timeout:.0f} s: {type(question).__name__}")
        return self._take(question.number)

    def ask_patiently(self, question: Question) -> Any:
        """Send a question and wait for its answer however long it takes.

        Raises:
            ConnectError: The worker answered with an error; RefusedError if with a refusal.
            TaskStoppedError: A stop was asked for first.
        """
        self.send(question)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or question.number in self._answers)
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

    def _take(self, number: int) -> Any:
        with self._changed:
            answer = self._answers.pop(number)
        if answer.error is not None:
            raise RefusedError(answer.error) if answer.refused else ConnectError(answer.error)
        return answer.value

    def answer(self, answer: Answer) -> None:
        """Take the answer to a question."""
        with self._changed:
            self._answers[answer.number] = answer
            self._changed.notify_all()
