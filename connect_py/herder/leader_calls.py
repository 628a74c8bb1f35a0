"""`LeaderCalls`: what a worker asks of the leader by itself, over HTTP; the REST layer implements
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

Signer: TypeAlias = Callable[[bytes], Mapping[str, str]]  # the headers that sign a body


class LeaderCalls(Protocol):
    """Each call waits for its answer, up to a deadline; safe on any thread."""

    def put_task_configs(
        self, url: str, connector: str, configs: Sequence[Mapping[str, str]], sign: Signer
    ) -> None:
        """Have the leader at this advertised URL publish a task set.

        Raises:
            ConnectError: It refused, with its text, or could not be reached.
        """

    def request_stop(
        self, url: str, connector: str, start_number: int, reason: str, sign: Signer
    ) -> None:
        """Have the leader stop a connector, as a task of this start asked. Errors: as above."""

    def fence_zombies(self, url: str, connector: str, sign: Signer) -> None:
        """Have the leader fence the producers of older source tasks. Errors: as above."""
