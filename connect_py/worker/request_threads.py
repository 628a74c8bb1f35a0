"""`RequestThreads`: provides the threads on which requests from source tasks wait for Kafka."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

THREADS: Final = 8  # maximum number of threads per connector


@dataclass(slots=True)
class _Pool:
    threads: ThreadPoolExecutor
    users: int = 0


class RequestThreads:
    """Provides separate threads for each connector. Thread-safe; never blocks.

    If the requests of one connector hang, for example because its own Kafka cluster is down, the
    tasks of other connectors are not affected.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, _Pool] = {}
        self._closed = False

    def enter(self, connector: str) -> Executor:
        """Return the threads of a connector. Each call must be paired with a call to `leave`."""
        with self._lock:
            pool = self._pools.get(connector)
            if pool is None:
                pool = _Pool(ThreadPoolExecutor(THREADS, f"source-offsets-{connector}"))
                if self._closed:
                    pool.threads.shutdown(wait=False)  # rejects all requests
                self._pools[connector] = pool
            pool.users += 1
            return pool.threads

    def leave(self, connector: str) -> None:
        """Remove one user of a connector's threads. Submitted requests still complete."""
        with self._lock:
            pool = self._pools[connector]
            pool.users -= 1
            if pool.users == 0:
                del self._pools[connector]
                pool.threads.shutdown(wait=False)

    def close(self) -> None:
        """Cancel the requests that have not started, and reject new ones."""
        with self._lock:
            self._closed = True
            for pool in self._pools.values():
                pool.threads.shutdown(wait=False, cancel_futures=True)
