"""`LeaderState`: one term of the group's leader: who lives, who may run what, and what to write.
Plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connect_py.herder.group.assignment import Memory, Seat, divide
from connect_py.herder.group.group_view import GroupView
from connect_py.herder.group.timings import Timings
from connect_py.storage.control_records import NOTHING, Assignment, Epoch, Item, Items, Place, Turn

UNKNOWN = "unknown"  # stands for members that the topic may not tell of
REFRESH_SECONDS = 12 * 3600.0  # shorter than any topic keeps its records


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write, in one transaction."""

    assignment: Assignment
    removed: tuple[str, ...]  # members whose lease surely ended
    # what was lost, by the URL of the worker that had it, until it is given to a member
    lost: Mapping[Item, str]


class LeaderState:
    """Decides by what the topic tells. Created after the old leader was fenced and the topic read
    to its end.

    Safety rests on one rule: an item is given to a member only when no other may run it. A member
    may run what it said it holds, what was given to it since, and, before it has applied an
    assignment of this term, anything that an earlier leader may have given. Not safe for several
    threads.
    """

    def __init__(
        self, epoch: Epoch, view: GroupView, timings: Timings, now: float, *, trusted: bool
    ) -> None:
        """Begin a term.

        Args:
            trusted: Every member that may hold a lease has a record in the topic.
        """
        self.epoch = epoch
        self._view = view
        self._timings = timings
        self._round = 0
        self._generation = epoch.generation
        self._owners: dict[Item, str] = {}  # by the last round of this term
        previous = view.assignment
        self._ghosts: dict[
            str, float
        ] = {}  # members that only an assignment tells of: since when they are waited for
        if not trusted:
            self._ghosts[UNKNOWN] = now
        for member in previous.places if previous is not None else ():
            if member not in view.members and member not in view.left:
                self._ghosts[member] = now
        # may act by assignments of earlier leaders
        self._inherited = {*view.members, *self._ghosts}
        self._urls = {member: heard.hello.url for member, heard in view.members.items()}
        self._rights = self._first_rights(previous)  # what each was given and has not lost
        # what each should have: perhaps more, while others have to stop it first
        self._targets = dict(self._rights)
        self._given: dict[int, Mapping[str, Place]] = {}  # by round, until everybody has applied it
        self._owing: dict[str, float] = {}  # members that have something to stop: since when
        self._written: tuple[Mapping[str, Place], frozenset[tuple[Item, str]]] | None = None
        self._memory = Memory(
            {} if previous is None else dict(previous.awaited),
            now + timings.max_delay if previous is not None and previous.awaited else None,
        )
        self._lost_members: dict[
            str, str
        ] = {}  # lost at the very beginning, or later; by member its URL
        if previous is not None:
            for member, place in previous.places.items():
                self._urls.setdefault(member, place.url)
                if member in view.left:
                    self._lost_members[member] = place.url
        self._written_at = now
        self._removed: list[str] = []
        self._seen = (-1, -1)
        self._next = now
        self._behind_since: float | None = None

    def _first_rights(self, previous: Assignment | None) -> dict[str, Items]:
        """What members were given by earlier leaders: by the last assignment, or by what they said
        if that is later."""
        claims: list[tuple[Turn, str, Items]] = []
        last = Turn() if previous is None else previous.turn
        places = {} if previous is None else previous.places
        for member, heard in self._view.members.items():
            if heard.hello.applied > last or (previous is None and heard.hello.assigned):
                claims.append((heard.hello.applied, member, heard.hello.assigned))
        claimed = {member for _, member, _ in claims}
        claims += [
            (last, member, place.items) for member, place in places.items() if member not in claimed
        ]
        rights: dict[str, Items] = dict.fromkeys(self._view.members, NOTHING)
        taken: set[Item] = set()
        for turn in sorted({turn for turn, _, _ in claims}, reverse=True):
            counted: dict[Item, int] = {}
            for at, _, items in claims:
                if at == turn:
                    for item in items:
                        counted[item] = counted.get(item, 0) + 1
            for at, member, items in claims:
                if at == turn:
                    rights[member] = frozenset(
                        item for item in items if counted[item] == 1 and item not in taken
                    )
            taken.update(counted)
        return rights

    # ------------------------------------------------------------------ questions

    @property
    def superseded(self) -> bool:
        """Whether a member has heard of a later leader: this term is over."""
        return self._view.highest_epoch_heard() > self.epoch.number

    def wants_end(self, now: float) -> bool:
        """Whether a member's lease may have ended: then the topic has to be read to its end to be
        sure."""
        return now >= self._first_end()

    def deadline(self) -> float:
        """When something may be due although no record came."""
        return min(self._next, self._first_end())

    def _first_end(self) -> float:
        heard = [heard.at for heard in self._view.members.values()]
        return min([*heard, *self._ghosts.values()], default=float("inf")) + self._timings.session

    def may_run(self, member: str) -> Items | None:
        """What a member may run now or by what was written already; None: anything."""
        heard = self._view.members.get(member)
        applied = Turn() if heard is None else heard.hello.applied
        if heard is not None and applied.epoch == self.epoch.number:
            known: set[Item] = {*heard.hello.assigned, *heard.hello.stopping}
            since = applied.round
        elif self.may_follow_earlier_leader(member) or (
            heard is not None and heard.hello.assigned | heard.hello.stopping
        ):
            return None  # also who was heard late, and holds what an earlier leader gave
        else:
            known, since = set(), 0
        for round_, places in self._given.items():
            if round_ > since and member in places:
                known |= places[member].items
        return frozenset(known)

    def may_follow_earlier_leader(self, member: str) -> bool:
        """Return True if a member may still run anything that an earlier leader assigned to it.

        This ends when the member applies an assignment of this term, or when its session expires.
        """
        return member in self._inherited

    # ------------------------------------------------------------------ decisions

    def decide(
        self, configured: Items, config_offset: int, now: float, caught_up: float
    ) -> Decision | None:
        """Return the next assignment when something has to change.

        Args:
            configured: All work there is, by the leader's own reading of the config topic.
            config_offset: How far that reading is.
            caught_up: Everything that was in the control topic at this time has been taken.
        """
        seen = (self._view.version, config_offset)
        if self.superseded or (
            seen == self._seen and now < self._next and not self._ends(caught_up)
        ):
            return None
        if self._is_behind(config_offset, now):
            return None
        self._seen, self._next = seen, float("inf")
        self._bury(caught_up)
        self._forget_applied()
        fit = self._fit(now)
        lost = self._lost(fit)
        seats = {
            member: Seat(self._urls[member], self._targets.get(member, NOTHING), member not in fit)
            for member in (*self._view.members, *self._ghosts)
            if member in fit or self._keeps(member)
        }
        division = divide(configured, seats, lost, self._memory, now, self._timings.max_delay)
        self._memory, self._targets = division.memory, dict(division.targets)
        if division.memory.until is not None:
            self._next = min(self._next, division.memory.until)
        places = self._places(division.targets)
        recorded = {**division.memory.awaited, **self._pending(places)}
        awaited = frozenset(recorded.items())
        if self._written == (places, awaited) and not self._removed and not self._repeats(now):
            return None
        self._round += 1
        self._given[self._round] = places
        self._written = places, awaited
        self._written_at = now
        self._rights = {
            **{member: items for member, items in self._rights.items() if member in self._ghosts},
            **{member: place.items for member, place in places.items()},
        }
        removed, self._removed = tuple(self._removed), []
        self._count_generation(configured, places)
        until = division.memory.until
        return Decision(
            Assignment(
                Turn(self.epoch.number, self._round),
                self._generation,
                config_offset,
                places,
                recorded,
                0 if until is None else max(0, round((until - now) * 1000)),
                UNKNOWN not in self._ghosts,
            ),
            removed,
            {
                item: url
                for item, url in {**lost, **division.memory.awaited}.items()
                if item in configured
            },
        )

    def _count_generation(self, configured: Items, places: Mapping[str, Place]) -> None:
        """A generation ends when a member loses work that still exists: then its farewell must
        outrank what it said.

        Java's workers go on with the group's own generation, one more with each change of members.
        What they say counts only if ours is not higher; so it grows no faster.
        """
        owners = {item: member for member, place in places.items() for item in place.items}
        if any(
            item in configured and owners.get(item) != member
            for item, member in self._owners.items()
        ):
            self._generation += 1
        self._owners = owners

    def failed(self, decision: Decision) -> None:
        """A decision may not have been written: the next one repeats it, in a later round."""
        self._written = None
        self._removed = [*decision.removed, *self._removed]
        self._seen = (-1, -1)

    def _repeats(self, now: float) -> bool:
        """Whether the last round is written again.

        A member that lives and has not applied it for a session may never see it; and the topic
        forgets old records.
        """
        turn = Turn(self.epoch.number, self._round)
        read = all(heard.hello.applied >= turn for heard in self._view.members.values())
        again = self._written_at + (REFRESH_SECONDS if read else self._timings.session)
        self._next = min(self._next, max(again, now))
        return now >= again

    def _is_behind(self, config_offset: int, now: float) -> bool:
        """Whether a member has read more of the config topic than this leader: it waits a little
        for its reader."""
        ahead = max(
            (heard.hello.config_offset for heard in self._view.members.values()), default=-1
        )
        if ahead <= config_offset:
            self._behind_since = None
            return False
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since >= self._timings.interval:
            return False  # what that member read is not there any more
        self._next = self._behind_since + self._timings.interval
        return True

    def _ends(self, caught_up: float) -> bool:
        return caught_up >= self._first_end()

    def _bury(self, caught_up: float) -> None:
        """Take out members whose lease surely ended: nothing of theirs was in the topic a session
        after their last."""
        session = self._timings.session
        for member in [
            m for m, heard in self._view.members.items() if heard.at + session <= caught_up
        ]:
            self._lost_members[member] = self._urls.setdefault(
                member, self._view.members[member].hello.url
            )
            self._view.take_left(member)
            self._removed.append(member)
        for member in [m for m, since in self._ghosts.items() if since + session <= caught_up]:
            del self._ghosts[member]
            self._inherited.discard(member)
            if member == UNKNOWN:
                self._written = None  # the next assignment can be trusted
            else:
                self._lost_members[member] = self._urls[member]
                self._removed.append(member)
        for member, heard in self._view.members.items():
            self._urls.setdefault(member, heard.hello.url)
            self._ghosts.pop(member, None)
        for member in [m for m in self._rights if m in self._view.left]:
            self._lost_members.setdefault(member, self._urls[member])

    def _forget_applied(self) -> None:
        """Drop rounds that every member has applied."""
        rounds = [
            heard.hello.applied.round if heard.hello.applied.epoch == self.epoch.number else 0
            for heard in self._view.members.values()
        ]
        for round_ in [
            round_ for round_ in self._given if round_ <= min(rounds, default=self._round)
        ]:
            del self._given[round_]

    def _fit(self, now: float) -> set[str]:
        """Members that count: one for each URL, none that takes too long to stop what it lost."""
        first: dict[str, str] = {}
        for member in sorted(
            self._view.members, key=lambda member: self._view.members[member].since
        ):
            first.setdefault(self._urls[member], member)
        ghosts = {self._urls[member] for member in self._ghosts if member != UNKNOWN}
        fit = set()
        for member in self._view.members:
            may_run = self.may_run(member)
            if may_run is not None and may_run <= self._rights.get(member, NOTHING):
                self._owing.pop(member, None)
            else:
                since = self._owing.setdefault(member, now)
                if now - since > self._timings.rebalance:
                    continue
                self._next = min(self._next, since + self._timings.rebalance + 0.001)
            if first[self._urls[member]] == member and self._urls[member] not in ghosts:
                fit.add(member)
        self._owing = {
            member: since for member, since in self._owing.items() if member in self._view.members
        }
        return fit

    def _keeps(self, member: str) -> bool:
        """Whether a member that does not count keeps what it has: it may live, a ghost or the
        second of a URL."""
        return member != UNKNOWN and member not in self._owing

    def _lost(self, fit: Iterable[str]) -> dict[Item, str]:
        """What was lost since the last round: of members that are gone, or that take too long."""
        fit = set(fit)
        lost: dict[Item, str] = {}
        for member, url in self._lost_members.items():
            lost.update(dict.fromkeys(self._take_from(member), url))
        self._lost_members.clear()
        for member in self._view.members:
            if member not in fit and not self._keeps(member):
                lost.update(dict.fromkeys(self._take_from(member), self._urls[member]))
        return lost

    def _take_from(self, member: str) -> Items:
        return self._rights.pop(member, NOTHING) | self._targets.pop(member, NOTHING)

    def _pending(self, places: Mapping[str, Place]) -> dict[Item, str]:
        """What members are to get once others have stopped it: the next leader finds it among what
        is awaited."""
        return {
            item: places[member].url
            for member, items in self._targets.items()
            if member in places
            for item in items - places[member].items
        }

    def _places(self, targets: Mapping[str, Items]) -> Mapping[str, Place]:
        """Cut targets down to what may be given now."""
        may_run = {member: self.may_run(member) for member in (*self._view.members, *self._ghosts)}
        anything = {member for member, items in may_run.items() if items is None}
        holders: dict[Item, set[str]] = {}
        for member, items in may_run.items():
            for item in items or ():
                holders.setdefault(item, set()).add(member)
        places = {}
        for member, heard in self._view.members.items():
            rights = self._rights.get(member, NOTHING)
            free_of_unknown = not anything - {member}
            places[member] = Place(
                heard.hello.url,
                frozenset(
                    item
                    for item in targets.get(member, NOTHING)
                    if item in rights
                    or (free_of_unknown and not holders.get(item, set()) - {member})
                ),
            )
        return places
