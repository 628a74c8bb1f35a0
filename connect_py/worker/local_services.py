"""`LocalServices`: provides shared services to one user in this process, without a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from connect_py.task.worker_client import WorkerClient, WorkerSharedServices
from connect_py.worker.service_registry import ServiceRegistry


class LocalServices(WorkerSharedServices):
    """Implements `connect_py.api.service.SharedServices`.

    The services are stopped at the end of the `with` block or of this process.
    """

    def __init__(
        self,
        label: str,
        props: Mapping[str, str] | None = None,
        registry: ServiceRegistry | None = None,
        location: str | None = None,
    ) -> None:
        """Create the user. Services in a shared `registry` run until the registry is closed."""
        self._owns_registry = registry is None
        self._registry = registry or ServiceRegistry()
        self._user = self._registry.user(label, location)
        worker = WorkerClient(self._user.acquire, self._user.notify)  # type: ignore[arg-type]  # the client sends only service requests
        super().__init__(worker, props or {})

    def stop(self) -> None:
        """Cancel all waiting calls."""
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
