"""`MemberState`: one worker's membership: its lease, what it may run, what it says about itself.
Plain data."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from connect_py.herder.group.group_view import GroupView
from connect_py.herder.group.timings import Timings
from connect_py.storage.control_records import NOTHING, Assignment, Hello, Items, Turn

# sessions that a member waits for a place: one that others believe gone is not heard any more
PATIENCE = 3
HASTE = 30  # a hello with news comes this many times sooner than one without, at the earliest


class Phase(Enum):
    """Where a member's life stands."""

    WAITING = auto()  # for another life of this worker's URL to end
    MEMBER = auto()
    ENDING = auto()  # the lease ended: everything stops, then another life begins
    LEAVING = auto()  # the worker stops


class UrlInUseError(Exception):
    """Another live worker announces this worker's URL."""


class MemberState:
    """Decides when to say hello, what may run, and when everything has to stop.

    The owner tells what happened (`take_assignment`, `acknowledged`, `holds`) and asks what to do
    (`hello`, `farewells`, `assigned`, `check`). Times are seconds on this worker's monotonic clock.
    Not safe for several threads.
    """

    def __init__(self, url: str, timings: Timings, new_id: Callable[[], str], now: float) -> None:
        self._url = url
        self._timings = timings
        self._new_id = new_id
        self._begun = now
        self._lives: set[str] = set()  # ids of earlier lives of this process
        self._farewells: list[str] = []  # ids of lives that ended with nothing left running
        self.phase = Phase.WAITING
        self.epoch = 0
        self.running: Items = NOTHING  # what may be running here, as the owner reported
        self._begin(now)

    def _begin(self, now: float) -> None:
        self.id = self._new_id()
        # None while the assignment has a place for this member
        self._unplaced_since: float | None = now
        self._number = 0
        self._sent: dict[int, float] = {}  # hellos without acknowledgement, by number
        self._unheard: dict[int, float] = {}  # hellos that were not read back, by number
        self._sent_at: float | None = None  # the last one
        self._news = True
        self._stopping_since: float | None = None
        self._silent = False
        self.applied = Turn()
        self.generation = 0
        self.config_offset = -1  # of the configuration that the assignment divides
        self.assigned: Items = NOTHING
        self.lease_until: float | None = None  # None before the first acknowledgement

    # ------------------------------------------------------------------ joining

    def join(self, view: GroupView, now: float) -> bool:
        """Become a member, unless another life of this URL may still hold a lease; whether this
        worker is one now.

        Raises: UrlInUseError: A worker with this URL still says hello, a whole session after this
            one began.
        """
        if self.phase is not Phase.WAITING:
            return True
        for heard in view.members.values():
            if heard.hello.url == self._url and now < heard.at + self._timings.session:
                if heard.at > self._begun + self._timings.session:
                    raise UrlInUseError(
                        f"another live worker of the group announces {self._url} as its URL"
                    )
                return False
        self.phase = Phase.MEMBER
        self._take_current(view, now)
        return True

    def _take_current(self, view: GroupView, now: float) -> None:
        self.epoch = max(self.epoch, view.highest_epoch())
        if view.assignment is not None:
            self.take_assignment(view.assignment, now)

    # ------------------------------------------------------------------ hellos and the lease

    def hello(self, now: float, config_offset: int) -> Hello | None:
        """The hello to send now, if one is due; it is sent at `now`."""
        if self.phase is Phase.MEMBER and self._forgotten(now):
            self._end()
        if now < self.next_hello(now):
            return None
        self._number += 1
        self._sent[self._number] = self._sent_at = now
        self._unheard[self._number] = now
        self._news = False
        return Hello(
            self.id,
            self._number,
            self._url,
            self.epoch,
            self.applied,
            config_offset,
            self.assigned,
            self.running - self.assigned,
        )

    def next_hello(self, now: float) -> float:
        """When the next hello is due: a time, or infinity."""
        if (
            self.phase not in (Phase.MEMBER, Phase.LEAVING)
            or self._stuck(now)
            or self._expired(now)
        ):
            return float("inf")
        if self._sent_at is None:
            return now
        wait = self._timings.interval / (HASTE if self._news else 1)
        return self._sent_at + wait

    def _forgotten(self, now: float) -> bool:
        """Whether no leader has had a place for this member for long: another life may be heard."""
        return (
            self._unplaced_since is not None
            and now - self._unplaced_since > PATIENCE * self._timings.session
        )

    def _stuck(self, now: float) -> bool:
        """Whether this member cannot follow its assignment: then it lets its lease end."""
        if (
            self._stopping_since is not None
            and now - self._stopping_since > self._timings.rebalance
        ):
            self._silent = True  # something does not stop
        if self._unheard and now - min(self._unheard.values()) > self._timings.rebalance:
            self._silent = True  # it writes and does not read
        return self._silent and self.lease_until is not None

    def acknowledged(self, member: str, number: int, now: float) -> None:
        """A hello arrived in the topic: the lease counts from the time it was sent."""
        sent = self._sent.pop(number, None) if member == self.id else None
        if (
            sent is None
            or self.phase not in (Phase.MEMBER, Phase.LEAVING)
            or self._end_if_expired(now)
        ):
            return
        self._sent = {later: at for later, at in self._sent.items() if later > number}
        until = sent + self._timings.lease
        if self.lease_until is None:
            if now < until:
                self.lease_until = until
                self._silent = False
                self._unheard = {
                    later: at for later, at in self._unheard.items() if later >= number
                }
        else:
            self.lease_until = max(self.lease_until, until)

    def lost(self, member: str, number: int) -> None:
        """A hello certainly did not arrive."""
        if member == self.id:
            self._sent.pop(number, None)
            self._unheard.pop(number, None)

    def heard_back(self, hello: Hello, now: float) -> None:
        """A member's hello was read from the topic; if it is this one's, so was everything before
        it."""
        if hello.member == self.id:
            self.acknowledged(hello.member, hello.number, now)
            self._unheard = {
                later: at for later, at in self._unheard.items() if later > hello.number
            }

    def deadline(self) -> float | None:
        """When everything that runs here must have ended by itself, whatever this process does;
        None: no lease."""
        return None if self.lease_until is None else self.lease_until + self._timings.grace

    def check(self, now: float) -> bool:
        """Whether work may go on: False once the lease has ended; then everything must be stopped
        at once."""
        return not self._end_if_expired(now) and self.phase is not Phase.ENDING

    def _expired(self, now: float) -> bool:
        return self.lease_until is not None and now >= self.lease_until

    def _end_if_expired(self, now: float) -> bool:
        if self._expired(now) and self.phase is Phase.MEMBER:
            self._end()
        return self._expired(now)

    def _end(self) -> None:
        self.phase = Phase.ENDING
        self.assigned = NOTHING

    # ------------------------------------------------------------------ work

    def take_assignment(self, assignment: Assignment, now: float) -> bool:
        """Work by an assignment; False when it is none for this member any more."""
        if self.is_outdated(assignment.turn):
            return False
        self.epoch = assignment.turn.epoch
        if self.phase is Phase.WAITING:
            return False
        if self.phase is not Phase.LEAVING and not self.check(now):
            return False
        place = assignment.places.get(self.id)
        if place is not None:
            self._unplaced_since = None
        elif self._unplaced_since is None:
            self._unplaced_since = now
        items = NOTHING if place is None or self.phase is Phase.LEAVING else place.items
        self.applied = assignment.turn
        self.generation = assignment.generation
        self.config_offset = assignment.config_offset
        self.assigned = items
        self._news = True
        self._note_stopping(now)
        return True

    def is_outdated(self, turn: Turn) -> bool:
        """Return True if a newer epoch is known, or if this assignment was already applied."""
        return turn.epoch < self.epoch or turn <= self.applied

    def take_epoch(self, number: int) -> None:
        """A leader announced its term: what earlier ones still write does not count."""
        self.epoch = max(self.epoch, number)

    def holds(self, items: Items, view: GroupView, now: float) -> None:
        """What may be running here: started and not surely stopped."""
        if items != self.running:
            self.running = items
            self._news = True
        self._note_stopping(now)
        if self.phase is Phase.ENDING and not items:
            self._farewells.append(self.id)
            self._lives.add(self.id)
            self._begin(now)
            self.phase = Phase.MEMBER
            self._take_current(view, now)
        elif self.phase is Phase.LEAVING and not items and self.id not in self._lives:
            self._farewells.append(self.id)
            self._lives.add(self.id)

    def _note_stopping(self, now: float) -> None:
        if not self.running - self.assigned:
            self._stopping_since = None
        elif self._stopping_since is None:
            self._stopping_since = now

    def removed(self, member: str) -> None:
        """A leader saw the lease of this member end."""
        if member == self.id and self.phase is Phase.MEMBER:
            self._end()

    def leave(self, view: GroupView, now: float) -> None:
        """The worker stops: nothing is assigned any more, and the farewell follows once nothing is
        held."""
        joined = self.phase is Phase.MEMBER
        self.phase = Phase.LEAVING
        self.assigned = NOTHING
        if not joined:
            self._lives.add(self.id)  # no other member knows it
        self.holds(self.running, view, now)

    def farewells(self) -> list[str]:
        """Take the ids of lives that ended with nothing left running, to be announced before the
        next hello."""
        taken, self._farewells = self._farewells, []
        return taken

    def may_start(self, now: float) -> Items:
        """What may be started at this moment."""
        return self.assigned if self.lease_until is not None and now < self.lease_until else NOTHING
