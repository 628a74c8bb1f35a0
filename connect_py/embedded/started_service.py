"""`StartedService`: base class for services that run inside a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class StartedService(ABC):
    """Starts when its `with` block is entered. Closes when the block ends or the start fails."""

    @abstractmethod
    def start(self) -> Self:
        """Start the service and return when it responds."""

    @abstractmethod
    def close(self) -> None:
        """Stop the service in any state. May be called repeatedly."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
