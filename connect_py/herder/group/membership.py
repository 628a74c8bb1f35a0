"""`Membership`: joins the group and checks that this worker may be a member."""

from __future__ import annotations

import threading

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock
from connect_py.herder.group.group_member import GroupMember
from connect_py.herder.group.member_state import UrlInUseError
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.kafka.authorization_errors import RefusedError
from connect_py.storage.control_records import NO_ITEMS

POLL_SECONDS = 0.2


class Membership:
    """Joins the group, and rejoins it if necessary. Used only on the herder's thread."""

    def __init__(
        self,
        group: WorkerGroup,
        member: GroupMember,
        group_id: str,
        clock: Clock,
        stopping: threading.Event,
    ) -> None:
        self._group = group
        self._member = member
        self._group_id = group_id
        self._clock = clock
        self._stopping = stopping

    def await_lone_leader(self) -> None:
        """Wait until the lease of any other worker that leads without transactions has expired.

        Raises:
            RefusedError: That worker is still running.
        """
        self._group.read_to_end()
        deadline = self._clock.monotonic() + self._group.timings.session_timeout
        while (
            self._group.lone_leader(surely=False) is not None and self._clock.monotonic() < deadline
        ):
            self._check_lone_leader()
            if self._stopping.wait(POLL_SECONDS):
                return

    def join(self) -> bool:
        """Join the group. Return True if the leader has included this worker in the assignment."""
        self.check()
        # nothing is running yet, so a member whose lease has expired can rejoin immediately
        self._group.set_running(NO_ITEMS)
        share = self._group.share()
        return self._group.join() and share.joined and share.working

    def check(self) -> None:
        """Check that this worker can be a member of the group. Rejoin the group if necessary.

        Raises:
            ConnectError: The worker cannot be a member, for example because another worker has the
                same URL.
        """
        if self._member.problem is not None:
            raise ConnectError(self._member.problem)
        self._check_lone_leader()
        try:
            self._group.join()
        except UrlInUseError as error:
            raise ConnectError(str(error)) from error

    def _check_lone_leader(self) -> None:
        url = self._group.lone_leader(surely=True)
        if url is not None:
            raise RefusedError(
                f"worker {url} of group '{self._group_id}' runs without transactions and therefore "
                "must be the only worker: grant Write and Describe on TransactionalId "
                f"'connect-cluster-{self._group_id}', or configure the brokers to support "
                "transactions; then restart that worker before you start this worker"
            )
