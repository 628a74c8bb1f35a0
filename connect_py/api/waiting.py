"""Reports from connectors and tasks that are running but cannot make progress."""

from __future__ import annotations

from typing import Protocol


class WaitReporter(Protocol):
    """Reports waits. Implemented by connector and task contexts. Thread-safe."""

    def waits(self, subject: str, reason: str | None) -> None:
        """Report a wait for `subject`, such as `catalog`, and its reason.

        A call with the reason None ends the wait.

        The status shows `waiting` next to RUNNING, with the time of the first call for `subject`.
        If there are several waits, the status shows the longest one. A wait is shown only after a
        few seconds. Call this method again after each failed attempt, because the status shows the
        latest reason. `subject` is a metric label, so it must have few distinct values.
        """


class BoundedWaitReporter(WaitReporter, Protocol):
    """Wait reporter for tasks, which can also limit their waits and show warnings."""

    def warns(self, subject: str, warning: str | None) -> None:
        """Show a warning in the status of the running task. None withdraws the warning.

        A warning describes something that works but needs attention. Each subject has at most one
        warning.
        """

    def bound_waiting(self, milliseconds: int | None, key: str) -> None:
        """Fail the task if any wait takes longer than this time.

        None, the default, disables the limit.

        The limit also applies to the worker's waits on behalf of the task, for example for a schema
        registry or for a `put` call that is retried. `key` is the config key that sets the limit,
        for the error message. A paused task does not fail.
        """
