"""`StartedService`: something with a start and an end, for a `with` statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class StartedService(ABC):
    """Starts where the block begins, and is closed at its end; also when it does not start."""

    @abstractmethod
    def start(self) -> Self:
        """Return when it answers."""

    @abstractmethod
    def close(self) -> None:
        """End it, whatever its state; any number of times."""

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
