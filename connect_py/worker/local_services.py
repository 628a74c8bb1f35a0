"""`LocalServices`: shared services for one user in this process, without a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from connect_py.task.worker_client import WorkerClient, WorkerSharedServices
from connect_py.worker.service_registry import ServiceRegistry


class LocalServices(WorkerSharedServices):
    """Implements `connect_py.api.service.SharedServices`.

    Services end with the `with` block or this process.
    """

    def __init__(
        self,
        label: str,
        props: Mapping[str, str] | None = None,
        registry: ServiceRegistry | None = None,
        location: str | None = None,
    ) -> None:
        """Create the user. If `registry` is shared, its services end when it is closed."""
        self._owns_registry = registry is None
        self._registry = registry or ServiceRegistry()
        self._user = self._registry.user(label, location)
        worker = WorkerClient(self._user.acquire, self._user.notify)  # type: ignore[arg-type]  # only requests for services
        super().__init__(worker, props or {})

    def stop(self) -> None:
        """End all waiting calls."""
        self._worker.stop()

    def close(self) -> None:
        """Release all services. May be called repeatedly."""
        self._user.close()
        if self._owns_registry:
            self._registry.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
