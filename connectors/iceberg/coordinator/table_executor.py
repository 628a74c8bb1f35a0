"""`TableExecutor`: runs calls concurrently unless they use the same table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, ParamSpec, TypeVar

EVERY_TABLE: Final = None  # instead of table names, for a call that runs alone
_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    tables: frozenset[str] | None
    run: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)

    def conflicts_with(self, other: _Call) -> bool:
        """Return True if the calls have a table in common."""
        return (
            self.tables is None or other.tables is None or not self.tables.isdisjoint(other.tables)
        )


class TableExecutor:
    """Thread pool of limited size for calls that may be slow. Thread-safe.

    Each call specifies the tables that it uses. It starts when no earlier unfinished call uses any
    of these tables. Therefore, calls for the same table run in the order of their submission, and
    each call starts after the callbacks of the previous call have returned.
    """

    def __init__(self, threads: int) -> None:
        """Create an executor. Its threads start on demand."""
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "tables")
        self._lock = threading.Lock()
        self._waiting: list[_Call] = []  # in the order of their submission
        self._running: list[_Call] = []

    def submit(
        self,
        tables: frozenset[str] | None,
        function: Callable[_P, _T],
        *arguments: _P.args,
        **keywords: _P.kwargs,
    ) -> Future[_T]:
        """Schedule a call to a function with these arguments on one of the threads.

        Args:
            tables: The tables that the call uses, or EVERY_TABLE.
            function: The function.
            *arguments: Its positional arguments.
            **keywords: Its keyword arguments.
        """
        call = _Call(tables, lambda: function(*arguments, **keywords))
        with self._lock:
            self._waiting.append(call)
            self._start_calls()
        return call.future

    def shutdown(self, *, wait: bool) -> None:
        """Cancel the calls that have not started. If `wait` is true, wait for the running calls."""
        with self._lock:
            canceled_calls, self._waiting = self._waiting, []
        for call in canceled_calls:
            call.future.cancel()
        self._pool.shutdown(wait)

    def _start_calls(self) -> None:
        """Start the waiting calls that can run now. The caller must hold the lock."""
        earlier_calls = [*self._running]
        for call in [*self._waiting]:
            if len(self._running) >= self._threads:
                return
            if not any(call.conflicts_with(earlier_call) for earlier_call in earlier_calls):
                self._waiting.remove(call)
                self._running.append(call)
                self._pool.submit(self._run, call)
            earlier_calls.append(call)

    def _run(self, call: _Call) -> None:
        if call.future.set_running_or_notify_cancel():
            try:
                result = call.run()
            except BaseException as error:  # noqa: BLE001 - raised by the future
                call.future.set_exception(error)
            else:
                call.future.set_result(result)
        with self._lock:
            self._running.remove(call)
            self._start_calls()
