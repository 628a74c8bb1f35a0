"""Faults of a run of the harness, and the plan of one run, drawn from its seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto


class Fault(Enum):
    """One kind each. Every kind must happen in a long run of the harness."""

    KILL_AT_POINT = auto()
    KILL_GROUP_AT_POINT = auto()
    STOP_AT_POINT = auto()
    DELAY_AT_POINT = auto()
    FAIL_AT_POINT = auto()
    COMMIT_REFUSED = auto()
    OUTCOME_UNKNOWN_LOST = auto()
    OUTCOME_UNKNOWN_APPLIED = auto()
    OUTCOME_UNKNOWN_FOR_LONG = auto()
    CATALOG_AWAY = auto()
    CATALOG_LOCKED = auto()
    DISK_FULL = auto()
    DISK_SLOW = auto()
    KILL_TASK = auto()
    KILL_COORDINATOR = auto()
    KILL_WORKER = auto()
    KILL_DRIVER = auto()
    KILL_JVM = auto()
    KILL_BROKER = auto()
    PAUSE_TASK = auto()
    PAUSE_COORDINATOR = auto()
    PAUSE_WORKER = auto()
    PAUSE_DRIVER = auto()
    PAUSE_JVM = auto()
    PAUSE_BROKER = auto()
    FEWER_TASKS = auto()
    MORE_TASKS = auto()
    SECOND_WORKER = auto()
    RESTART_CONNECTOR = auto()
    STOP_CONNECTOR = auto()
    LINE_CUT = auto()
    LINE_RESET = auto()
    LINE_SLOW = auto()
    CHANNEL_EMPTIED = auto()
    FOREIGN_COMPACTION = auto()
    FOREIGN_EXPIRY = auto()


AT_POINT = (
    Fault.KILL_AT_POINT,
    Fault.KILL_GROUP_AT_POINT,
    Fault.STOP_AT_POINT,
    Fault.DELAY_AT_POINT,
    Fault.FAIL_AT_POINT,
)
INJECTED: dict[Fault, tuple[str, ...]] = {  # items of the plan that processes read; {n} is drawn
    Fault.COMMIT_REFUSED: ("before_compare_and_swap=raise:forbidden@{n}",),
    Fault.OUTCOME_UNKNOWN_LOST: ("before_compare_and_swap=raise:unknown@{n}",),
    Fault.OUTCOME_UNKNOWN_APPLIED: ("after_swap=raise:unknown@{n}",),
    Fault.OUTCOME_UNKNOWN_FOR_LONG: (
        "after_swap=raise:unknown@{n}",
        "catalog_findCommit=raise:unavailable@1",
    ),
    Fault.CATALOG_AWAY: ("catalog_load=raise:unavailable@{n}",),
    Fault.DISK_FULL: ("staging_write=raise:full@{n}",),
    Fault.DISK_SLOW: ("staging_write=delay:700@1+",),
}
_TURNS = (  # steps of every cycle
    "after_fencing",
    "before_epoch_started",
    "before_start_commit",
    "after_start_commit",
    "before_close_files",
    "staging_write",
    "after_close_files",
    "after_report",
    "after_accept",
    "catalog_load",
    "catalog_create",
    "after_create_table",
    "before_prepare",
    "after_completed_rows",
    "after_merge",
    "before_compare_and_swap",
    "after_swap",
    "catalog_findCommit",
    "after_compare_and_swap",
    "before_clean",
    "after_clean",
    "before_commit_complete",
    "after_commit_complete",
    "before_group_commit",
    "after_group_commit",
)
_AGGREGATE = (
    "before_aggregate",
    "after_aggregate",
    "before_aggregate_commit",
    "after_aggregate_commit",
)
_EXPIRATION = ("before_expiration", "after_expiration")
_COMPACTION = (
    "catalog_compact",
    "before_compaction_write",
    "after_compaction_write",
    "before_rewrite_swap",
    "after_rewrite_swap",
    *_EXPIRATION,
)
POINTS = (*_TURNS, *_AGGREGATE, *_COMPACTION)
LOOKED_FOR = "catalog_findCommit"
LASTS = (0.5, 1.5, 3.0, 7.5)  # seconds; the last is beyond every time-out
CREATION = ("catalog_create", "after_create_table")
# Passed seconds after the rows of a run: after the start of a coordinator, or between two cycles.
LATE = (*CREATION, "before_clean", "after_clean", *_COMPACTION)
# Passed once by each coordinator or for each table, so only after a restart or in a new connector.
_ONCE = frozenset(
    {
        "after_fencing",
        "before_epoch_started",
        "catalog_create",
        "after_create_table",
        "before_clean",
        "after_clean",
        LOOKED_FOR,
        *_EXPIRATION,
    }
)


class Feature(Enum):
    """Feature of the sink that all tables of a connector use."""

    PLAIN = "plain"
    PARTIAL_ROWS = "partial rows"
    HELD = "held"
    AGGREGATE = "aggregate"
    COMPACTION = "compaction"


_FEATURE_POINTS = {Feature.AGGREGATE: _AGGREGATE, Feature.COMPACTION: _COMPACTION}


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault of a run."""

    fault: Fault
    at_seconds: float  # after the run's beginning
    lasts_seconds: float  # for pauses, cuts and absences
    items: tuple[str, ...] = ()  # of the plan that processes read
    point: str | None = None

    def __str__(self) -> str:
        what = ",".join(self.items)
        return f"{self.fault.name.lower()}{f' {what}' if what else ''} at {self.at_seconds:.1f}s"


@dataclass(frozen=True, slots=True)
class Shape:
    """The connector of a few runs."""

    mode: str  # append or merge
    tables: str  # one, both (one topic into two tables), routed (two topics into two tables)
    engine: str  # of merges
    partitions: int
    tasks: int
    format_version: int
    feature: Feature

    def __str__(self) -> str:
        engine = " full MERGE" if self.engine == "merge" else ""
        return f"{self.feature.value} v{self.format_version} {self.mode}{engine} {self.tables}"


_VERSIONS_AND_FEATURES = [(version, feature) for feature in Feature for version in (2, 3)]


def shape_of(seed: int) -> Shape:
    """Return the shape of a connector. Ten consecutive seeds have all versions and features."""
    chance = random.Random(f"shape {seed}")
    version, feature = _VERSIONS_AND_FEATURES[seed % len(_VERSIONS_AND_FEATURES)]
    mode = chance.choice(("append", "merge", "merge"))
    if feature is Feature.PARTIAL_ROWS:
        mode = "merge"
    engine = "merge" if mode == "merge" and chance.random() < 0.18 else "auto"
    return Shape(
        mode,
        chance.choice(("one", "both", "routed")),
        engine,
        chance.choice((2, 3)),
        chance.choice((1, 2, 2)),
        version,
        feature,
    )


def plan_of(
    seed: int,
    begins: bool,
    feature: Feature = Feature.PLAIN,
    only: Sequence[Fault] = tuple(Fault),
) -> list[Planned]:
    """Return one to four faults. `begins`: the connector is new, and its first steps can be
    reached.

    Two of three runs act at a point; points take turns, and a hundred runs reach all of them. The
    points of a feature are used in two of three runs of its connectors.
    """
    chance = random.Random(f"plan {seed}")
    faults = chance.sample(
        [fault for fault in only if fault not in AT_POINT], chance.choice((1, 1, 2, 2, 3))
    )
    planned: list[Planned] = []
    at_point = [fault for fault in AT_POINT if fault in only]
    if at_point and chance.random() < (0.9 if feature in _FEATURE_POINTS else 0.67):
        planned.append(_at_point(chance, chance.choice(at_point), _turn(seed, begins, feature)))
    for fault in faults:
        items = tuple(item.format(n=chance.choice((1, 1, 2))) for item in INJECTED.get(fault, ()))
        taken = {item.split("=")[0] for other in planned for item in other.items}
        if not taken & {item.split("=")[0] for item in items}:
            planned.append(Planned(fault, chance.uniform(0.0, 1.5), chance.choice(LASTS), items))
    met_by_a_new_life = any(p.point in _ONCE for p in planned) and not begins
    if met_by_a_new_life and Fault.KILL_COORDINATOR not in {p.fault for p in planned}:
        planned.append(Planned(Fault.KILL_COORDINATOR, 0.2, 0.0))
    return sorted(planned, key=lambda each: each.at_seconds)


def _turn(seed: int, begins: bool, feature: Feature) -> str:
    """Return the point whose turn it is. In a new connector, every other turn goes to the points
    that are passed once."""
    feature_points = _FEATURE_POINTS.get(feature, ())
    if feature_points and seed % 3:
        # a new table has no old snapshots
        points = [point for point in feature_points if not (begins and point in _EXPIRATION)]
        return random.Random(f"point {seed}").choice(points)
    if begins and seed % 2:
        once = sorted(_ONCE - {LOOKED_FOR, *_EXPIRATION})
        return once[seed // 2 % len(once)]
    points = [point for point in _TURNS if begins or point not in CREATION]
    return points[seed % len(points)]


def _at_point(chance: random.Random, fault: Fault, point: str) -> Planned:
    lasts = chance.choice(LASTS)
    action = {
        Fault.KILL_AT_POINT: "kill",
        Fault.KILL_GROUP_AT_POINT: "killgroup",
        Fault.STOP_AT_POINT: "stop",
        Fault.DELAY_AT_POINT: f"delay:{round(min(lasts, 3.0) * 1000)}",
        Fault.FAIL_AT_POINT: "raise",
    }[fault]
    items = [f"{point}={action}@{1 if point in _ONCE else chance.choice((1, 1, 2))}"]
    if point == LOOKED_FOR:  # somebody looks for a commit only when nobody knows how it ended
        items.append("after_swap=raise:unknown@1")
    return Planned(fault, 0.0, lasts, tuple(items), point)
