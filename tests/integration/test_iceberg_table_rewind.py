"""Rewinds of real tables, also in random histories of commits, compactions, expiries and deaths."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from fixtures.iceberg_commit import KEY, Lake, Sink, lake, order

from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.config.expectations import Expectation
from connectors.iceberg.config.maintenance_policy import MaintenanceMode, MaintenancePolicy
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.ledger import Standing, look_up
from connectors.iceberg.protocol.own_refs import unpublished_branch
from connectors.iceberg.table.table import StagedKind
from connectors.iceberg_tools.audit.table_audit import Verdict, audit
from connectors.iceberg_tools.maintenance.maintenance_action import MaintenanceRequest, maintain
from connectors.iceberg_tools.maintenance.maintenance_plan import MaintenanceAction, MaintenanceKind
from connectors.iceberg_tools.refs.ledger_check import effects
from connectors.iceberg_tools.refs.table_rewind import RewindMode, RewindRequest, is_rewound, rewind

__all__ = ["lake"]

GROUP = "connect-orders"
POLICY = MaintenancePolicy(
    MaintenanceMode.TRUE, small_files=2, keep_ms=1, keep_snapshots=4, operations_table=None
)
Rows = dict[str, str]


def request(sink: Sink, snapshot: int, mode: RewindMode) -> RewindRequest:
    head = sink.lake.catalog.table(sink.name).metadata().refs[MAIN]
    return RewindRequest(MAIN, head, snapshot, mode, KEY, GROUP)


@pytest.mark.parametrize("version", [2, 3])
def test_skip_keeps_positions_on_the_snapshot_it_goes_back_to(lake: Lake, version: int) -> None:
    sink = lake.make(version=version)
    first = sink.commit(sink.stage([order(1, "a")])).snapshot_id or 0
    sink.commit(sink.stage([order(1, "a", "south"), order(1, "b")]))
    asked = request(sink, first, RewindMode.SKIP)
    head = lake.catalog.run(sink.name, rewind, asked)
    assert lake.catalog.run(sink.name, rewind, asked) == head  # again: as after a death
    metadata = lake.catalog.table(sink.name).metadata()
    assert (metadata.refs, metadata.snapshots[head]["parent-snapshot-id"]) == ({MAIN: head}, first)
    found = look_up(sink.load().view)
    assert (found.standing, found.version.property_snapshot) == (Standing.FOUND, head)
    assert found.ledger is not None
    entry = found.ledger.topics["orders"].partitions[0]
    assert (entry.generation, entry.base, entry.next) == (0, 20, 20)
    assert sink.rows("number, region") == [(("number", "a"), ("region", "north"))]
    sink.commit(sink.stage([order(1, "a", "west")]))
    assert sink.rows("number, region") == [(("number", "a"), ("region", "west"))]
    [group] = audit(lake.catalog.history(sink.name, MAIN)).groups
    assert group.verdict is Verdict.PROVEN
    assert [note.text for note in group.notes if note.kind == "skipped"] == [
        "orders-0: offsets 10 to 19 were skipped by a rewind"
    ]


@pytest.mark.parametrize("mode", RewindMode)
def test_rewind_is_refused_if_a_commit_was_held_since(lake: Lake, mode: RewindMode) -> None:
    sink = lake.make()
    first = sink.commit(sink.stage([order(1, "a")])).snapshot_id or 0
    sink.commit(sink.stage([order(1, "b")]))
    asked = request(sink, first, mode)
    gated = {
        "unpublished_branch": unpublished_branch(GROUP),
        "expectations": (Expectation("good", "number < 'c'"),),
    }
    assert sink.commit(sink.stage([order(1, "c")]), **gated).unpublished
    with pytest.raises(TableUnsuitableError, match="has unpublished commits"):
        lake.catalog.run(sink.name, rewind, asked)
    assert sink.rows("number") == [(("number", "a"),), (("number", "b"),)]


@dataclass
class Story:
    """A topic of changes, a table that a sink fills from it, and its expected rows."""

    sink: Sink
    chance: random.Random
    version: int
    log: list[Rows] = field(default_factory=list)  # one item a cycle: key -> region; empty: deleted
    skipped: set[int] = field(default_factory=set)  # cycles
    states: dict[int, Rows] = field(default_factory=dict)  # rows by snapshot
    # a snapshot -> how many cycles it holds or skips
    cycles: dict[int, int] = field(default_factory=dict)
    known: Rows = field(default_factory=dict)

    def metadata_head(self) -> int:
        return self.sink.lake.catalog.table(self.sink.name).metadata().refs[MAIN]

    def commit(self, changes: Rows) -> None:
        """Commit one cycle from the topic, which may have been read before."""
        upserts = [order(1, key, region) for key, region in changes.items() if region]
        deletes = [{"shop": 1, "number": key} for key, region in changes.items() if not region]
        files = self.sink.stage(upserts)
        if deletes:
            files += self.sink.stage(deletes, StagedKind.DELETES)
        snapshot = self.sink.commit(files).snapshot_id
        assert snapshot is not None
        self.known = {k: v for k, v in {**self.known, **changes}.items() if v}
        self.states[snapshot], self.cycles[snapshot] = dict(self.known), self.sink.cycle

    def cycle(self) -> None:
        keys = self.chance.sample("abcdefgh", self.chance.randint(1, 3))
        changes = {key: self.chance.choice(("", "north", "south", "west")) for key in keys}
        self.log.append(changes)
        self.commit(changes)

    def refill(self) -> None:
        """Read from the ledger's position, like a connector after a rollback."""
        found = look_up(self.sink.load().view)
        assert found.standing in (Standing.FOUND, Standing.ROLLED_BACK)
        self.sink.cycle = (
            found.ledger.topics["orders"].partitions[0].next // 10 if found.ledger else 0
        )
        while self.sink.cycle < len(self.log):
            self.commit(self.log[self.sink.cycle])

    def maintain(self, kind: MaintenanceKind) -> None:
        time.sleep(0.002)
        asked = MaintenanceRequest(MaintenanceAction(kind, "a test"), POLICY)
        self.sink.lake.catalog.run(self.sink.name, maintain, asked)
        self.states.setdefault(self.metadata_head(), dict(self.known))
        self.cycles.setdefault(self.metadata_head(), self.sink.cycle)

    def rewind(self, mode: RewindMode, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rewind to any state that the ledgers allow; crash before or after the swap, and run it
        again.
        """
        catalog, metadata = (
            self.sink.lake.catalog,
            self.sink.lake.catalog.table(self.sink.name).metadata(),
        )
        line = [int(s["snapshot-id"]) for s in metadata.ancestors(metadata.head(MAIN))]
        targets = [
            n
            for n in line
            if n in self.states and not any(e.refused for e in effects(metadata, MAIN, n))
        ]
        if len(targets) < 2:
            return
        target = self.chance.choice(targets[1:])
        asked, before = request(self.sink, target, mode), self.sink.cycle
        if is_rewound(metadata, asked):  # to where a skip went already
            return
        real, early = TableUpdate.swap, self.chance.random() < 0.5

        def swap(prepared: TableUpdate, properties: dict[str, str]) -> None:
            if not early:
                real(prepared, properties)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(TableUpdate, "swap", swap)
            with pytest.raises(KeyboardInterrupt):
                catalog.run(self.sink.name, rewind, asked)
        head = catalog.run(self.sink.name, rewind, asked)
        self.known = dict(self.states[target])
        if mode is RewindMode.REPLAY:
            self.check()
            self.refill()
        else:
            self.states[head], self.cycles[head] = dict(self.known), before
            lost = range(self.cycles[target], before)
            self.skipped |= {*lost}

    def check(self) -> None:
        found = {
            dict(row)["number"]: dict(row)["region"] for row in self.sink.rows("number, region")
        }
        assert found == self.known


def run(lake: Lake, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    version = chance.choice((2, 3))
    story = Story(lake.make(version=version), chance, version)
    story.cycle()
    acts: Sequence[tuple[str, int]] = (
        ("cycle", 6),
        ("compact", 2),
        ("expire", 1),
        ("replay", 2),
        ("skip", 2),
    )
    for _ in range(steps):
        match chance.choices([name for name, _ in acts], [weight for _, weight in acts])[0]:
            case "cycle":
                story.cycle()
            case "compact":
                story.maintain(MaintenanceKind.COMPACT)
            case "expire":
                story.maintain(MaintenanceKind.EXPIRE)
            case "replay":
                story.rewind(RewindMode.REPLAY, monkeypatch)
            case _:
                story.rewind(RewindMode.SKIP, monkeypatch)
        story.check()
    [group] = audit(lake.catalog.history(story.sink.name, MAIN)).groups
    assert group.violations == []


def test_random_histories_with_rewinds_leave_what_was_said(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lake, 1, 7, monkeypatch)


@pytest.mark.long
@pytest.mark.timeout(600)  # forty steps of a second or two
@pytest.mark.parametrize("seed", range(2, 12))
def test_long_random_histories_with_rewinds_leave_what_was_said(
    lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lake, seed, 40, monkeypatch)
