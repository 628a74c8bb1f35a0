"""`QuestionThreads`: threads on which questions of source tasks wait for Kafka, apart for each
connector."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

THREADS: Final = 8  # of one connector, as far as they are needed at the same time


@dataclass(slots=True)
class _Pool:
    threads: ThreadPoolExecutor
    users: int = 0


class QuestionThreads:
    """A connector whose questions hang, as one with a cluster of its own that is away, holds up its
    own tasks only.

    Any thread; nothing waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, _Pool] = {}
        self._closed = False

    def enter(self, connector: str) -> Executor:
        """The threads of a connector, until `leave` was called as often as this."""
        with self._lock:
            pool = self._pools.get(connector)
            if pool is None:
                pool = _Pool(ThreadPoolExecutor(THREADS, f"source-offsets-{connector}"))
                if self._closed:
                    pool.threads.shutdown(wait=False)  # it refuses
                self._pools[connector] = pool
            pool.users += 1
            return pool.threads

    def leave(self, connector: str) -> None:
        """One user less; what was submitted is still done."""
        with self._lock:
            pool = self._pools[connector]
            pool.users -= 1
            if pool.users == 0:
                del self._pools[connector]
                pool.threads.shutdown(wait=False)

    def close(self) -> None:
        """Do nothing that has not begun."""
        with self._lock:
            self._closed = True
            for pool in self._pools.values():
                pool.threads.shutdown(wait=False, cancel_futures=True)
