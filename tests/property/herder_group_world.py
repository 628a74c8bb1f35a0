"""Simulation of `MemberState` and `LeaderState`: seeded, without Kafka, processes, or clocks.

The control topic is a list, and a worker has a record of its running items. Faults occur at random
(see `Fault`). The simulation fails as soon as an item runs twice. After some time, the faults stop,
the world comes to rest, and `World.verify` checks which worker runs which item.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias, TypeVar

from connect_py.herder.group.group_view import GroupView
from connect_py.herder.group.leader_state import Decision, LeaderState
from connect_py.herder.group.member_state import MemberState, Phase, UrlInUseError
from connect_py.herder.group.timings import Timings
from connect_py.model import ConnectorTaskId
from connect_py.storage.control_records import (
    NO_ITEMS,
    Assignment,
    AssignmentVersion,
    Epoch,
    Heartbeat,
    Item,
    Items,
    MemberAssignment,
)

# duration of the calm, in which all leases, delays, and slow stops end
CALM_SECONDS = 26.0
TIMINGS = Timings(session_timeout=4.0, heartbeat_interval=1.0, rebalance_timeout=5.0, max_delay=0.0)
REST_SECONDS = 3.0  # end of the calm, in which no item starts


class Fault(Enum):
    """Faults that a storm may have. Each must occur in a run of many seeds."""

    HELLO_LOST = auto()
    HELLO_TWICE = auto()
    HELLO_LATE = auto()
    ACKNOWLEDGEMENT_LOST = auto()
    READER_LATE = auto()
    READER_DEAF = auto()
    WORKER_KILLED = auto()
    WORKER_STOPPED = auto()
    WORKER_JOINS = auto()
    EVERYTHING_KILLED = auto()
    URL_TAKEN_OVER = auto()
    LEADER_KILLED = auto()
    LEADER_PAUSED = auto()
    WORKER_PAUSED = auto()
    WORKER_CUT = auto()
    BROKER_AWAY = auto()
    LEADERSHIP_MOVED = auto()
    LEADER_FENCED = auto()
    WRITE_LOST = auto()
    WRITE_UNKNOWN = auto()
    LATE_ASSIGNMENT = auto()
    TOPIC_WIPED = auto()
    STRANGER_LEADS = auto()  # a new worker that has not read the records of the lost topic
    STOP_HANGS = auto()
    CONFIG_LATE = auto()
    CONNECTOR_ADDED = auto()
    CONNECTOR_REMOVED = auto()
    TASKS_CHANGED = auto()


class Switch(Enum):
    """Rules that a test can disable to prove that the simulation fails without them."""

    STOP_AT_END_OF_LEASE = auto()  # child processes end even if the worker is paused
    REFUSE_LATE_ACKNOWLEDGEMENT = auto()  # an ended lease is not extended
    READ_TO_END_BEFORE_BURIAL = auto()
    WAIT_FOR_CONFIRMATION = auto()  # that members have stopped the revoked items
    # members that have not applied an assignment of this term may follow an older one
    WAIT_FOR_INHERITED = auto()
    DISTRUST_EMPTY_TOPIC = auto()
    IGNORE_LOWER_EPOCHS = auto()


class MemberThatExtendsEndedLeases(MemberState):
    """Counts a lease from the acknowledgement instead of the heartbeat, even after its end."""

    def acknowledged(self, member: str, number: int, now: float) -> None:
        if member == self.id:
            self.lease_until = max(self.lease_until or 0.0, now + TIMINGS.lease)
        super().acknowledged(member, number, now)


class MemberThatFollowsEveryLeader(MemberState):
    """Applies assignments of earlier epochs and rounds."""

    def is_outdated(self, version: AssignmentVersion) -> bool:
        return False


class LeaderThatExpectsNoConfirmation(LeaderState):
    """Takes items away from a member and assigns them before the member has stopped them."""

    def may_run(self, member: str) -> Items | None:
        return None if super().may_run(member) is None else NO_ITEMS


class LeaderThatForgetsEarlierOnes(LeaderState):
    """Assigns items that members may still run because of an earlier leader."""

    def may_follow_earlier_leader(self, member: str) -> bool:
        return False


MEMBERS: Mapping[Switch, type[MemberState]] = {
    Switch.REFUSE_LATE_ACKNOWLEDGEMENT: MemberThatExtendsEndedLeases,
    Switch.IGNORE_LOWER_EPOCHS: MemberThatFollowsEveryLeader,
}
LEADERS: Mapping[Switch, type[LeaderState]] = {
    Switch.WAIT_FOR_CONFIRMATION: LeaderThatExpectsNoConfirmation,
    Switch.WAIT_FOR_INHERITED: LeaderThatForgetsEarlierOnes,
}


class WrongWorldError(Exception):
    """An item ran twice, or the simulation did not converge."""


@dataclass(frozen=True, slots=True)
class Farewell:
    member: str


_T = TypeVar("_T")
Record: TypeAlias = Heartbeat | Farewell | Epoch | Assignment


class Topic:
    """Control topic: a list that may be emptied. Only the newest producer can write to it."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.incarnation = 0  # number of times that the topic was created again
        self.token = 0  # of the newest transactional producer


@dataclass(slots=True)
class Config:
    """Config topic: all items by offset."""

    versions: list[Items]

    @property
    def offset(self) -> int:
        return len(self.versions) - 1


class Node:
    """Worker process around a `MemberState` and possibly a `LeaderState`."""

    def __init__(self, world: World, url: str) -> None:
        self.world = world
        self.url = url
        self.alive = True
        self.paused_until = 0.0
        self.cut_until = 0.0
        self.deaf_until = 0.0
        self.view = GroupView()
        self.position = (world.topic.incarnation, 0)
        self.config_offset = world.config.offset
        # running items, with the time at which a requested stop ends
        self.running: dict[Item, float | None] = {}
        self.hard_deadline: float | None = None  # deadline that the child processes have
        self.leader: LeaderState | None = None
        self.token = -1
        self.owns = False  # True: the worker believes that it owns the partition
        self.read_up_to = -1.0
        self.not_before = 0.0  # time of the next attempt to lead
        self.leaving = False
        self.writing = False
        self.turns: AssignmentVersion = AssignmentVersion()
        self.read()
        self.member = world.member_type(url, world.timings, world.new_id, world.now)

    @property
    def reaches_broker(self) -> bool:
        return self.world.now >= max(self.cut_until, self.world.broker_away_until)

    # Control topic

    def read(self) -> None:
        """Read the topic to its end."""
        topic, now = self.world.topic, self.world.now
        incarnation, at = self.position
        if incarnation != topic.incarnation:
            at = 0
            self.view.topic_lost(now)
        for record in topic.records[at:]:
            self.take(record, now)
        self.position = topic.incarnation, len(topic.records)
        self.read_up_to = now

    def take(self, record: Record, now: float) -> None:
        member = getattr(self, "member", None)
        if isinstance(record, Heartbeat):
            self.view.apply_heartbeat(record, now)
            if member is not None:
                member.read_back(record, now)
        elif isinstance(record, Farewell):
            self.view.remove_member(record.member)
            if member is not None:
                member.removed(record.member)
        elif isinstance(record, Epoch):
            self.view.apply_epoch(record)
            if member is not None:
                member.apply_epoch(record.number)
        else:
            is_new = self.view.apply_assignment(record)
            if member is not None and (is_new or self.world.off(Switch.IGNORE_LOWER_EPOCHS)):
                member.apply_assignment(record, now)

    # One iteration of the herder

    def step(self) -> None:
        now = self.world.now
        if not self.alive or now < self.paused_until:
            return
        self.end_children()
        if self.reaches_broker and now >= self.deaf_until:
            self.read()
            self.config_offset = max(self.config_offset, self.world.config_seen_by(self))
            self.owns = self.world.owner is self
        if self.leaving and self.member.phase is not Phase.LEAVING:
            self.member.leave(self.view, now)
        if not self.leaving:
            try:
                self.member.join(self.view, now)
            except UrlInUseError:  # the worker ends, and its supervisor restarts it
                self.world.kill(self, 1.0)
                return
        self.work()
        self.send()
        self.lead()

    def work(self) -> None:
        """Start and stop items like the herder."""
        world, now, member = self.world, self.world.now, self.member
        for item in [
            item for item, ends in self.running.items() if ends is not None and ends <= now
        ]:
            del self.running[item]
        if not member.check(now):
            for item in list(self.running):
                self.running[item] = min(self.running[item] or now + 0.2, now + 0.2)
        configured = world.config.versions[self.config_offset]
        for item in [
            item for item in self.running if item not in member.assigned or item not in configured
        ]:
            if self.running[item] is None:
                self.running[item] = now + world.stop_seconds()
        held = frozenset({*self.running, *member.assigned})
        may_start = member.may_start(now)
        if self.config_offset >= member.config_offset:
            for item in may_start:
                if item in configured and item not in self.running:
                    world.starts(self, item)
                    self.running[item] = None
        member.set_running(frozenset(self.running) | (held & member.assigned), self.view, now)
        if member.phase is Phase.ENDING or member.lease_until is None:
            member.set_running(frozenset(self.running), self.view, now)
        self.hard_deadline = member.deadline() if self.running else None
        if (
            member.applied < self.turns
            and member.applied != AssignmentVersion()
            and not world.off(Switch.IGNORE_LOWER_EPOCHS)
        ):
            raise WrongWorldError(f"{self.url} went back from {self.turns} to {member.applied}")
        self.turns = max(self.turns, member.applied)

    def end_children(self) -> None:
        """End the child processes if the lease has ended, regardless of the worker."""
        ended = self.hard_deadline is not None and self.world.now >= self.hard_deadline
        if ended and not self.world.off(Switch.STOP_AT_END_OF_LEASE):
            self.running.clear()

    def send(self) -> None:
        """Send farewells and a heartbeat if they are due."""
        now, world = self.world.now, self.world
        if not self.reaches_broker:
            self.member.heartbeat(now, self.config_offset)  # the heartbeat is lost
            return
        for member in self.member.members_to_announce():
            world.append_later(Farewell(member), self.sending_delay())
        heartbeat = self.member.heartbeat(now, self.config_offset)
        if heartbeat is not None:
            world.send(self, heartbeat)

    def sending_delay(self) -> float:
        return self.world.random.uniform(0.005, 0.05)

    # Leadership

    def lead(self) -> None:
        world, now = self.world, self.world.now
        if not self.reaches_broker:
            return
        if self.leader is not None and (not self.owns or self.leader.superseded):
            self.leader = None
        if self.owns and self.leader is None and now >= self.not_before and not self.leaving:
            self.take_lead()
        if self.leader is None or self.writing:
            return
        if world.off(Switch.READ_TO_END_BEFORE_BURIAL):
            self.read_up_to = now
        offset = self.config_offset
        decision = self.leader.decide(world.config.versions[offset], offset, now, self.read_up_to)
        if decision is not None:
            self.writing = True
            leader = self.leader
            world.at(now + self.sending_delay(), lambda: self.write(leader, decision))
            # paused between the decision and the write
            if world.stormy and world.random.random() < 0.02:
                world.count(Fault.LEADER_PAUSED)
                world.pause(self, world.random.choice((1.0, 6.0, 9.0)))

    def take_lead(self) -> None:
        world = self.world
        world.topic.token += 1
        self.token = world.topic.token
        self.read()
        empty = (
            self.view.epoch is None
            or self.view.assignment is None
            or not self.view.assignment.complete
        )
        trusted = not empty or (world.config.offset == 0 and not world.topic.records)
        number = (
            1
            + self.view.highest_epoch_seen()
            + (0 if trusted else world.random.randrange(1_000_000))
        )
        if world.off(Switch.DISTRUST_EMPTY_TOPIC) or world.off(Switch.WAIT_FOR_INHERITED):
            trusted = True
        generation = 1 + (self.view.assignment.generation if self.view.assignment else 0)
        epoch = Epoch(number, self.url, generation)
        world.append(epoch)
        self.read()
        self.leader = world.leader_type(epoch, self.view, world.timings, world.now, trusted=trusted)

    def write(self, leader: LeaderState | None, decision: Decision) -> None:
        """Commit the transaction of a decision some time after the decision."""
        world = self.world
        if world.now < self.paused_until:
            world.at(self.paused_until + 0.001, lambda: self.write(leader, decision))
            return
        self.writing = False
        world.wake(self, world.now)
        if not self.alive or self.leader is not leader or leader is None:
            return
        if self.token != world.topic.token:
            world.count(Fault.LEADER_FENCED)
            self.leader = None
            self.not_before = world.now + 2 * world.timings.heartbeat_interval
            return
        lost = world.stormy and world.random.random() < 0.04
        if not self.reaches_broker or lost:
            world.count(Fault.WRITE_LOST)
            leader.failed(decision)
            return
        world.append(decision.assignment)
        for member in decision.removed:
            world.append(Farewell(member))
        if world.stormy and world.random.random() < 0.04:
            world.count(Fault.WRITE_UNKNOWN)
            leader.failed(decision)

    def wake_at(self) -> float:
        """Return the time of the next action if no record arrives."""
        now, member = self.world.now, self.member
        times = [member.next_heartbeat(now)]
        times += [ends for ends in self.running.values() if ends is not None]
        if member.lease_until is not None and member.phase is not Phase.ENDING:
            times.append(member.lease_until)
        if member.phase is Phase.WAITING:
            times.append(now + 1.0)
        if self.leader is not None:
            times.append(self.leader.deadline())
        elif self.owns:
            times.append(self.not_before)
        return min(times)


def _type_of(base: type[_T], types: Mapping[Switch, type[_T]], off: Iterable[Switch]) -> type[_T]:
    """Return the class whose objects do not have the disabled rules."""
    bases = [types[switch] for switch in sorted(off, key=lambda s: s.name) if switch in types]
    return type(base.__name__, (*bases, base), {}) if bases else base


class World:
    """Event queue, workers, and topics."""

    def __init__(
        self, seed: int, off: frozenset[Switch] = frozenset(), max_delay: float | None = None
    ) -> None:
        self.random = random.Random(seed)
        self._off = off
        self.member_type = _type_of(MemberState, MEMBERS, off)
        self.leader_type = _type_of(LeaderState, LEADERS, off)
        self.now = 0.0
        self.faults: Counter[Fault] = Counter()
        self.stormy = True
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._ids = itertools.count(1)
        self.timings = replace(
            TIMINGS,
            max_delay=self.random.choice((0.0, 0.0, 2.0, 5.0)) if max_delay is None else max_delay,
        )
        self.topic = Topic()
        self.config = Config([frozenset()])
        self._connectors: dict[str, int] = {}
        self._config_late_until: dict[int, float] = {}
        self.broker_away_until = 0.0
        self.owner: Node | None = None
        self._owner_silent_since: float | None = None
        self.nodes: list[Node] = []
        self.starts_of_items = 0
        self._last_move = 0.0
        self._scheduled: dict[int, float] = {}
        for number in range(self.random.randint(1, 3)):
            self.join(f"w{number}")
        for _ in range(self.random.randint(1, 2)):
            self.add_connector()

    # Helpers

    def off(self, switch: Switch) -> bool:
        return switch in self._off

    def count(self, fault: Fault) -> None:
        self.faults[fault] += 1

    def new_id(self) -> str:
        return f"m{next(self._ids)}"

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), action))

    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]

    def stop_seconds(self) -> float:
        if self.stormy and self.random.random() < 0.02:
            self.count(Fault.STOP_HANGS)
            return 8.0
        return self.random.choice((0.0, 0.05, 0.5, 1.5))

    # Items

    def starts(self, node: Node, item: Item) -> None:
        """Record the start of an item, and raise WrongWorldError if it runs elsewhere."""
        self.starts_of_items += 1
        self._last_move = self.now
        for other in self.nodes:
            if other is not node and other.alive:
                other.end_children()
                ends = other.running.get(item, 0.0)
                if item in other.running and (
                    ends is None or ends > self.now or self.now < other.paused_until
                ):
                    raise WrongWorldError(
                        f"{item} runs on {other.url} and starts on {node.url} at {self.now:.3f}"
                    )

    # Control topic

    def append(self, record: Record) -> None:
        self.topic.records.append(record)
        for node in self.alive():
            delay = self.random.uniform(0.005, 0.05)
            if self.stormy and self.random.random() < 0.01:
                self.count(Fault.READER_LATE)
                delay = self.random.uniform(0.5, 4.0)
                node.deaf_until = max(node.deaf_until, self.now + delay)
            # other workers read heartbeats with the next record
            if node.owns or not isinstance(record, Heartbeat):
                self.wake(node, self.now + delay)

    def append_later(self, record: Record, delay: float) -> None:
        incarnation = self.topic.incarnation
        self.at(
            self.now + delay,
            lambda: self.append(record) if incarnation == self.topic.incarnation else None,
        )

    def send(self, node: Node, heartbeat: Heartbeat) -> None:
        delay, chance = node.sending_delay(), self.random.random() if self.stormy else 1.0
        if chance < 0.03:
            self.count(Fault.HELLO_LOST)
            self.at(self.now + delay, lambda: node.member.lost(heartbeat.member, heartbeat.number))
            return
        if chance < 0.06:
            self.count(Fault.HELLO_LATE)
            delay = self.random.uniform(1.0, 7.0)
        elif chance < 0.08:
            self.count(Fault.HELLO_TWICE)
            self.append_later(heartbeat, delay + self.random.uniform(0.0, 6.0))
        self.append_later(heartbeat, delay)
        if 0.08 <= chance < 0.11:
            self.count(Fault.ACKNOWLEDGEMENT_LOST)
            return
        self.acknowledge(node, heartbeat, self.now + delay + 0.01)

    def acknowledge(self, node: Node, heartbeat: Heartbeat, when: float) -> None:
        def arrive() -> None:
            if not node.alive:
                return
            if self.now < node.paused_until - 0.001:  # shortly before or after it resumes
                self.at(node.paused_until + self.random.choice((-0.0005, 0.01)), arrive)
                return
            first = node.member.lease_until is None
            node.member.acknowledged(heartbeat.member, heartbeat.number, self.now)
            if first:
                self.wake(node, self.now)

        self.at(when, arrive)

    def config_seen_by(self, node: Node) -> int:
        return (
            node.config_offset
            if self.now < self._config_late_until.get(id(node), 0.0)
            else self.config.offset
        )

    # Scheduling

    def wake(self, node: Node, when: float) -> None:
        """Schedule an iteration of a worker, unless an earlier one is scheduled."""
        when = max(when, node.paused_until)
        scheduled = self._scheduled.get(id(node))
        if scheduled is not None and self.now <= scheduled <= when:
            return
        self._scheduled[id(node)] = when

        def look() -> None:
            if self._scheduled.get(id(node)) == when:
                del self._scheduled[id(node)]
            if not node.alive:
                return
            node.step()
            following = min(max(node.wake_at(), self.now + 0.02), self.now + 2.0)
            self.wake(node, following)

        self.at(when, look)

    def elect(self) -> None:
        """Assign partition 0 like the consumer group: a new owner needs the session to expire."""

        def fit(node: Node) -> bool:
            return (
                node.alive
                and self.now >= max(node.paused_until, node.cut_until)
                and not node.leaving
            )

        if self.now >= self.broker_away_until:
            owner = self.owner
            if owner is not None and fit(owner):
                self._owner_silent_since = None
            elif owner is not None and self._owner_silent_since is None:
                self._owner_silent_since = self.now
            is_lost = (
                owner is None
                or (owner.alive and owner.leaving and not owner.running)
                or (
                    self._owner_silent_since is not None
                    and self.now - self._owner_silent_since >= self.timings.session_timeout
                )
            )
            candidates = [node for node in self.nodes if fit(node)]
            if is_lost and candidates:
                self.give_ownership(self.random.choice(candidates))
        self.at(self.now + 0.7, self.elect)

    def give_ownership(self, node: Node) -> None:
        self.owner, self._owner_silent_since = node, None
        self.wake(node, self.now + 0.02)

    # Workers

    def join(self, url: str) -> Node:
        node = Node(self, url)
        self.nodes.append(node)
        self.wake(node, self.now + self.random.uniform(0.0, 0.5))
        return node

    def kill(self, node: Node, back: float | None) -> None:
        node.alive = False
        node.running.clear()
        if back is not None:
            self.at(self.now + back, lambda: self.back(node.url))

    def back(self, url: str) -> None:
        if all(node.url != url for node in self.alive()):
            self.join(url)

    def set_config(self) -> None:
        items: set[Item] = set(self._connectors)
        for name, tasks in self._connectors.items():
            items |= {ConnectorTaskId(name, number) for number in range(tasks)}
        self.config.versions.append(frozenset(items))
        for node in self.alive():
            if self.stormy and self.random.random() < 0.1:
                self.count(Fault.CONFIG_LATE)
                self._config_late_until[id(node)] = self.now + self.random.uniform(0.5, 3.0)
            self.wake(node, self.now + 0.03)

    def add_connector(self) -> None:
        self._connectors[f"c{next(self._ids)}"] = self.random.randint(0, 3)
        self.set_config()

    def storm(self) -> None:
        """Cause one fault."""
        choose = self.random
        nodes = self.alive()
        node = choose.choice(nodes) if nodes else None
        leader = self.owner if self.owner is not None and self.owner.alive else None
        kind = choose.choice(STORM)
        if kind is Fault.WORKER_JOINS and len(nodes) < 4:
            self.back(f"w{choose.randrange(4)}")
        elif kind is Fault.EVERYTHING_KILLED and choose.random() < 0.3:
            for one in nodes:
                self.kill(one, choose.uniform(0.1, 6.0))
        elif kind is Fault.BROKER_AWAY:
            self.broker_away_until = self.now + choose.choice((1.0, 4.0, 9.0))
        elif kind is Fault.LEADERSHIP_MOVED and node is not None:
            self.give_ownership(node)
        elif kind is Fault.LEADER_PAUSED and leader is not None:
            self.pause(leader, choose.choice((0.5, 6.0, 10.0)))
        elif kind is Fault.LEADER_KILLED and leader is not None:
            self.kill(leader, choose.choice((None, 0.5, 6.0)))
        elif kind is Fault.WORKER_KILLED and node is not None:
            self.kill(node, choose.choice((None, 8.0)))
        elif kind is Fault.URL_TAKEN_OVER and node is not None:
            self.kill(node, choose.uniform(0.01, 2.0))
        elif kind is Fault.WORKER_STOPPED and node is not None:
            self.leave(node)
        elif kind is Fault.WORKER_PAUSED and node is not None:
            self.pause(node, choose.choice((0.5, 4.0, 7.0, 10.0)))
        elif kind is Fault.WORKER_CUT and node is not None:
            node.cut_until = self.now + choose.choice((2.0, 4.5, 9.0))
        elif kind is Fault.READER_DEAF and node is not None:
            node.deaf_until = self.now + choose.choice((2.0, 10.0))
        elif kind is Fault.TOPIC_WIPED:
            self.topic.records = []
            self.topic.incarnation += 1
            if choose.random() < 0.3 and len(nodes) < 4:
                self.count(Fault.STRANGER_LEADS)
                stranger = self.join(f"s{next(self._ids)}")
                self.give_ownership(stranger)
        elif (
            kind is Fault.LATE_ASSIGNMENT
            and leader is not None
            and leader.view.assignment is not None
        ):
            self.forge(leader.view)
        elif kind is Fault.CONNECTOR_ADDED and len(self._connectors) < 4:
            self.add_connector()
        elif kind is Fault.CONNECTOR_REMOVED and self._connectors:
            del self._connectors[choose.choice(sorted(self._connectors))]
            self.set_config()
        elif kind is Fault.TASKS_CHANGED and self._connectors:
            self._connectors[choose.choice(sorted(self._connectors))] = choose.randint(0, 4)
            self.set_config()
        else:
            return
        self.count(kind)

    def pause(self, node: Node, seconds: float) -> None:
        node.paused_until = self.now + seconds
        if self.random.random() < 0.3:  # the reader thread resumes last
            self.count(Fault.READER_LATE)
            node.deaf_until = max(
                node.deaf_until, node.paused_until + self.random.uniform(0.1, 1.0)
            )
        self.wake(node, node.paused_until)
        if node.hard_deadline is not None:
            self.at(node.hard_deadline, node.end_children)

    def leave(self, node: Node) -> None:
        node.leaving = True
        self.wake(node, self.now)

        def gone() -> None:
            if not node.alive:
                return
            if node.running or self.now < node.paused_until:
                self.at(self.now + 0.3, gone)
                return
            self.kill(node, self.random.choice((None, 0.5, 2.0, 9.0)))

        self.at(self.now + 0.5, gone)

    def forge(self, view: GroupView) -> None:
        """Append a late assignment of an earlier leader, which assigns everything to one member."""
        assignment = view.assignment
        assert assignment is not None
        everything = self.config.versions[-1]
        version = AssignmentVersion(assignment.version.epoch - 1, assignment.version.round + 100)
        chosen = self.random.choice(sorted(view.members) or ["nobody"])
        members = {chosen: MemberAssignment("w", everything)}
        self.append(replace(assignment, version=version, members=members))

    # Run

    def run(self) -> None:
        self.at(0.0, self.elect)
        when = self.random.uniform(2.0, 5.0)
        for _ in range(self.random.randint(2, 6)):
            self.at(when, self.storm)
            when += self.random.choice((0.2, 1.0, 3.0, 6.0))
        self.at(when, self.calm)
        self.run_until(when + CALM_SECONDS + self.timings.max_delay)

    def start_quietly(self, workers: int) -> None:
        """Start workers without faults, and wait until all items run."""
        self.stormy = False
        self.at(0.0, self.elect)
        while len(self.nodes) < workers:
            self.join(f"w{len(self.nodes)}")
        while len(self._connectors) < 3:
            self.add_connector()
        self.run_until(CALM_SECONDS)

    def whereabouts(self) -> dict[Item, str]:
        """Return the worker of each running item."""
        return {item: node.url for node in self.alive() for item in node.running}

    def run_until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = end

    def calm(self) -> None:
        self.stormy = False
        self.at(self.now + 8.0, lambda: None if self.alive() else self.back("w0"))
        for node in self.alive():
            node.paused_until = min(node.paused_until, self.now + 1.0)
            self.wake(node, self.now + 1.0)

    def verify(self) -> None:
        """Raise WrongWorldError unless exactly the configured items run, balanced and at rest."""
        running = Counter(
            item for node in self.alive() for item, ends in node.running.items() if ends is None
        )
        configured = self.config.versions[-1]
        if running != Counter(configured):
            raise WrongWorldError(
                f"configured {sorted(map(str, configured))}, running {running}; {self.state()}"
            )
        nodes = self.alive()
        for kind in (str, ConnectorTaskId):
            loads = [sum(isinstance(item, kind) for item in node.running) for node in nodes]
            if max(loads) - min(loads) > 1:
                raise WrongWorldError(f"loads {loads} of {kind.__name__}; {self.state()}")
        if self._last_move > self.now - REST_SECONDS:
            raise WrongWorldError(
                f"an item started {self.now - self._last_move:.1f} s before the end; {self.state()}"
            )

    def state(self) -> str:
        return "; ".join(
            f"{node.url} {node.member.id} {node.member.phase.name} {node.member.applied} "
            f"{'leads' if node.leader else ''} {sorted(map(str, node.running))}"
            for node in self.alive()
        )


STORM: tuple[Fault, ...] = (
    Fault.WORKER_JOINS,
    Fault.WORKER_JOINS,
    Fault.EVERYTHING_KILLED,
    Fault.BROKER_AWAY,
    Fault.LEADERSHIP_MOVED,
    Fault.LEADER_PAUSED,
    Fault.LEADER_PAUSED,
    Fault.LEADER_KILLED,
    Fault.WORKER_KILLED,
    Fault.URL_TAKEN_OVER,
    Fault.WORKER_STOPPED,
    Fault.WORKER_PAUSED,
    Fault.WORKER_CUT,
    Fault.READER_DEAF,
    Fault.TOPIC_WIPED,
    Fault.LATE_ASSIGNMENT,
    Fault.CONNECTOR_ADDED,
    Fault.CONNECTOR_REMOVED,
    Fault.TASKS_CHANGED,
)


def simulate(seed: int, off: Iterable[Switch] = ()) -> World:
    """Run one seed, and raise WrongWorldError if it fails."""
    world = World(seed, frozenset(off))
    world.run()
    world.verify()
    return world
