"""How a task or a connector says that it runs and can do no work."""

from __future__ import annotations

from typing import Protocol


class WaitReporter(Protocol):
    """Part of the contexts of connectors and tasks. Any thread."""

    def waits(self, what: str, reason: str | None) -> None:
        """Say that work waits for something, such as `catalog`, and why; None: it waits no longer.

        The status shows `waiting` beside RUNNING, with the time of the first call for `what`: of
        several the one that lasts longest, and none before it lasts some seconds. Call it again
        whenever an attempt failed: the newest reason counts. `what` comes from a small set, since
        metrics have it as a label.
        """


class BoundedWaitReporter(WaitReporter, Protocol):
    """The same for tasks, which may give up."""

    def warns(self, subject: str, warning: str | None) -> None:
        """Show a warning in the status of the running task, in addition to its state; None:
        withdraw it.

        A warning concerns something that works and needs attention. A subject has at most one.
        """

    def bound_waiting(self, milliseconds: int | None, key: str) -> None:
        """Have the task fail once anything is waited for so long; None, as at first: never.

        That includes what the worker waits for on behalf of the task: a schema registry, or a `put`
        that is repeated. `key` is the configuration key that says so, for the error. A paused task
        does not fail.
        """
