"""Reports of connectors and tasks that are running but cannot make progress."""

from __future__ import annotations

from typing import Protocol


class WaitReporter(Protocol):
    """Part of the contexts of connectors and tasks. Thread-safe."""

    def waits(self, subject: str, reason: str | None) -> None:
        """Report that work is waiting for something, such as `catalog`, with the reason.

        None ends the wait.

        The status shows `waiting` next to RUNNING, with the time of the first call for `subject`.
        Of several waits, it shows the longest one, and only after a few seconds. Call this method
        again after each failed attempt: the status shows the latest reason. `subject` must be one
        of a few values, because it is a label of metrics.
        """


class BoundedWaitReporter(WaitReporter, Protocol):
    """Wait reporter of tasks, which can limit their waits."""

    def warns(self, subject: str, warning: str | None) -> None:
        """Show a warning in the status of the running task. None withdraws the warning.

        A warning is about something that works but needs attention. Each subject has at most one
        warning.
        """

    def bound_waiting(self, milliseconds: int | None, key: str) -> None:
        """Fail the task if any wait takes longer than this time.

        None, the default, disables the limit.

        The limit includes waits of the worker on behalf of the task, for example for a schema
        registry or for a `put` that is repeated. `key` is the config key of the limit, for the
        error message. A paused task does not fail.
        """
