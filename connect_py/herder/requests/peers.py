"""`Peers`: interface for the worker group and for requests from other workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future

from connect_py.herder.herder import WorkerInfo
from connect_py.herder.request_signature import RequestSignature
from connect_py.metrics.samples import AnySample


class Peers(ABC):
    """Describes this worker's group and handles requests from its members. Thread-safe."""

    @abstractmethod
    def workers(self) -> list[WorkerInfo]:
        """Return the workers in the group, sorted by URL."""

    @abstractmethod
    def samples(self) -> Iterable[AnySample]:
        """Return the metrics of this worker's group membership."""

    @abstractmethod
    def put_task_configs(
        self, name: str, configs: Sequence[Mapping[str, str]], signature: RequestSignature | None
    ) -> Future[None]:
        """See `Herder.put_task_configs`."""

    @abstractmethod
    def put_stop_request(
        self, name: str, start_number: int, reason: str, signature: RequestSignature | None
    ) -> Future[None]:
        """See `Herder.put_stop_request`."""

    @abstractmethod
    def fence_zombies(self, name: str, signature: RequestSignature | None) -> Future[None]:
        """See `Herder.fence_zombies`."""
