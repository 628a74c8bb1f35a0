"""The rules of the protocol, and the protocol without some of them.

Production code has no switches. To turn a rule off, the simulation runs the code that applies it
with some words changed. The words must stand there exactly once: a rule whose code was written anew
fails its test.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from textwrap import dedent
from typing import Any, NamedTuple

from connectors.iceberg.protocol import (
    commit_cycle,
    coordinator_state,
    ledger,
    source_progress,
    table_opening,
    task_partition,
    task_state,
)
from connectors.iceberg.protocol.commit_cycle import CommitCycle
from connectors.iceberg.protocol.coordinator_state import CoordinatorState
from connectors.iceberg.protocol.ledger import Lookup, TableView
from connectors.iceberg.protocol.source_progress import SourceProgress
from connectors.iceberg.protocol.table_opening import TableOpening
from connectors.iceberg.protocol.task_partition import TaskPartition
from connectors.iceberg.protocol.task_state import TaskState


class Rule(Enum):
    """One switch per rule that the state machines apply. The comment says what goes wrong without
    it.

    A value begins with its rule's number in `docs/protocol.md`.
    """

    LEDGER_BOUND_TO_TABLE = "1"  # a re-created table with copied properties would count as filled
    ALL_POSITIONS_IN_EVERY_COMMIT = "2"  # a newly routed table would get rows from before its start
    PROPERTY_BACKS_THE_LEDGER = "3"  # expiry by others, or a roll-back, would go unnoticed
    # a table made anew of its own rows would get all of them once more
    REPLACED_IS_NOT_ROLLED_BACK = "3 replaced"
    GROUP_OFFSETS_NEED_OUR_MARK = "4"  # a tool's reset would skip rows
    EPOCH_ABOVE_EVERY_TRACE = "5"  # after a wiped channel an old coordinator would be followed
    # what a catalog forgot that was restored from a backup would stay out
    MARK_KNOWS_NEWEST_COMMITS = "4 commits"
    # rows that a deliberate rewind asks for would stay out of tables ahead of it
    REWIND_REACHES_EVERY_TABLE = "7"
    # what an owner of an earlier epoch committed late would fill a new table
    NEWER_LEDGER_BEFORE_GROUP = "7 group"
    REFILL_EXACTLY_FROM_LEDGER = "8"  # a rolled-back table would keep its hole
    # a crash after the first refill would leave the rest out
    LOWERED_GROUP_BEFORE_REFILL = "8 guard"
    # so would a table that is made in place of one that was rolled back
    LOWERED_GROUP_BEFORE_NEW_TABLE = "8 new"
    # a floor that an owner got before the roll-back would get into the group
    OWNER_FOLLOWED_BEFORE_REFILL = "8 owner"
    PROOF_BEFORE_FIRST_LEDGER = "9"  # a sleeper would give a re-created table another start
    # files of an ended epoch, which are removed, would be reported to the next
    HIGHER_EPOCH_DETACHES = "10"
    REPORT_FILTERED_TABLES = "11"  # a table would advance over rows that a stale filter dropped
    REPORTS_OF_OUR_START_ONLY = "14 start"  # a task with an older configuration would hide rows
    ACCEPT_CONTIGUOUS_ONLY = "14"  # gaps and repetitions would count as progress
    CHECK_FILTER_AND_FIRST = "15"  # missing or doubled rows
    QUIET_TABLE_MOVES_WITHOUT_GAP = "19"  # a table would pass over rows that no task staged for it
    # after a crash no task would read again what only some tables have
    FLOOR_IS_THE_LOWEST_TABLE = "20"
    SEND_BACK_BELOW_APPLIED = "20 rewind"  # a range that a table refused would never be read again
    # who read the group just before it was altered would write the old offsets back
    NO_OLDER_GENERATION = "21 guard"
    # files of a table that was replaced meanwhile would be looked for in vain
    FILES_BOUND_TO_TABLE = "22"
    MISSING_IS_NOT_DONE = "22 missing"  # rows would pass by a table that was dropped for a moment
    TOPIC_ID_EVERYWHERE = "23"  # offsets of one topic would count for another of the same name
    ONE_CLUSTER_PER_LEDGER = "24"  # offsets of another cluster's topics would count for ours
    # what retention removed before a table had it would be passed over in silence
    LOG_STILL_HOLDS_IT = "28"


_LOOK_UP, _JUDGE = ledger.look_up, ledger._judge
_NEVER = "if False:"
# What is changed, and how: words of its source, and others for them.
_CHANGES: Mapping[Rule, list[tuple[Callable[..., Any], str, str]]] = {
    Rule.LEDGER_BOUND_TO_TABLE: [
        (_LOOK_UP, "if prop and prop.ledger.table != view.uuid:", _NEVER),
        (_LOOK_UP, "if stamp.table != view.uuid:", _NEVER),
    ],
    Rule.ALL_POSITIONS_IN_EVERY_COMMIT: [
        (
            CommitCycle,
            "in sorted(self._progress.partitions.items()):",
            "in sorted(item for item in self._progress.partitions.items() if item[0] in "
            "with_rows):",
        ),
    ],
    Rule.PROPERTY_BACKS_THE_LEDGER: [
        (_LOOK_UP, "_judge(view, found, prop)", "_judge(view, found, None)")
    ],
    Rule.REPLACED_IS_NOT_ROLLED_BACK: [(_JUDGE, "if view.complete and view.replaced:", _NEVER)],
    Rule.GROUP_OFFSETS_NEED_OUR_MARK: [
        (
            SourceProgress,
            "        entries = [ledger.entry(partition",
            "        if offset is not None:\n"
            "            generation = mark.generation if mark else 0\n"
            "            return PartitionState(info.id, generation, log_start, offset.offset, "
            "offset.offset)\n"
            "        entries = [ledger.entry(partition",
        ),
    ],
    Rule.EPOCH_ABOVE_EVERY_TRACE: [
        (
            CoordinatorState,
            "        if channel_epoch:",
            "        traces = []\n        if channel_epoch:",
        ),
        (TaskState, "if message.epoch.number < self._start_number:", _NEVER),
        (TaskState, "if self._seen is not None and message.epoch < self._seen:", _NEVER),
    ],
    Rule.MARK_KNOWS_NEWEST_COMMITS: [
        (TableOpening, "went_back = self._went_back(lookup)", "went_back = False")
    ],
    Rule.REWIND_REACHES_EVERY_TABLE: [
        (
            TableOpening,
            "if entry is None or entry.generation < state.generation:",
            "if entry is None:",
        ),
    ],
    Rule.NEWER_LEDGER_BEFORE_GROUP: [
        (TableOpening, "if self._is_newer_than_the_group(ledger, state):", _NEVER),
    ],
    Rule.REFILL_EXACTLY_FROM_LEDGER: [
        (TableOpening, "went_back or lookup.standing is Standing.ROLLED_BACK", "went_back"),
    ],
    Rule.LOWERED_GROUP_BEFORE_REFILL: [(CommitCycle, "if table.guarded:", _NEVER)],
    Rule.LOWERED_GROUP_BEFORE_NEW_TABLE: [
        (TableOpening, "rolled_back or self._progress.is_below_a_sent_floor(needs)", "rolled_back"),
    ],
    Rule.OWNER_FOLLOWED_BEFORE_REFILL: [(SourceProgress, ", *state.sent[mark.rewind :]", "")],
    Rule.PROOF_BEFORE_FIRST_LEDGER: [
        (
            CommitCycle,
            "if table.ledger is None:\n            work.step = Step.LEADERSHIP",
            f"{_NEVER}\n            work.step = Step.LEADERSHIP",
        ),
    ],
    Rule.HIGHER_EPOCH_DETACHES: [
        (TaskState, "actions += self._detach(list(self._partitions), now_ms)", "pass")
    ],
    Rule.REPORT_FILTERED_TABLES: [
        (TaskPartition, "in self.parts.items()", "in self.parts.items() if part.first is not None"),
    ],
    Rule.REPORTS_OF_OUR_START_ONLY: [
        (CoordinatorState, "if start < self._settings.start_number:", _NEVER)
    ],
    Rule.ACCEPT_CONTIGUOUS_ONLY: [
        (
            CoordinatorState,
            "if reported.start != state.accepted or reported.generation != state.generation:",
            _NEVER,
        ),
    ],
    Rule.CHECK_FILTER_AND_FIRST: [
        (CommitCycle, "rewound or gap or doubled:", "rewound or (gap and first is None):"),
    ],
    Rule.QUIET_TABLE_MOVES_WITHOUT_GAP: [
        (
            CommitCycle,
            "rewound or gap or doubled:",
            "rewound or (gap and first is not None) or doubled:",
        ),
    ],
    Rule.FLOOR_IS_THE_LOWEST_TABLE: [
        (
            SourceProgress,
            "needed = [table.needs[partition] for table in self.tables.values()]",
            "needed = []",
        ),
    ],
    Rule.SEND_BACK_BELOW_APPLIED: [(SourceProgress, "if lowest < state.applied:", _NEVER)],
    Rule.NO_OLDER_GENERATION: [
        (TaskState, "if given.generation < state.least_generation:", _NEVER)
    ],
    Rule.FILES_BOUND_TO_TABLE: [
        (
            CommitCycle,
            "replaced = part is not None and part.uuid != table.uuid",
            "replaced = False",
        ),
    ],
    Rule.MISSING_IS_NOT_DONE: [
        (
            CommitCycle,
            "        self._progress.tables[name].missing = True\n",
            "        table = self._progress.tables[name]\n"
            "        table.needs = self._share(name, table)[0]\n"
            "        work.step = Step.DONE\n"
            "        return []\n",
        ),
    ],
    Rule.TOPIC_ID_EVERYWHERE: [
        (SourceProgress, "if other_topic and not self.settings.new_topic_allowed:", _NEVER),
        (SourceProgress, "ledger.entry(partition, info.id) for", "ledger.entry(partition) for"),
        (SourceProgress, "if offset and mark and mark.topic_id == info.id:", "if offset and mark:"),
        (SourceProgress, "elif state.topic_id != info.id:", "elif False:"),
        (CoordinatorState, "if state is None or state.topic_id != topic_id:", "if state is None:"),
        (
            CoordinatorState,
            "if state is None or reported.topic_id != state.topic_id:",
            "if state is None:",
        ),
        (TableOpening, "if topic and topic.topic_id != state.topic_id:", _NEVER),
        (TaskState, "if topic_id != state.topic_id:", _NEVER),
        (TaskState, "if given.topic_id != state.topic_id:", _NEVER),
    ],
    Rule.ONE_CLUSTER_PER_LEDGER: [
        (TableOpening, "if ledger and ledger.cluster != self._progress.settings.cluster:", _NEVER),
    ],
    Rule.LOG_STILL_HOLDS_IT: [
        (SourceProgress, "if first < log_start:", _NEVER),
        (SourceProgress, "self._check_log(partition, lowest, log_start)", "pass"),
        (
            CoordinatorState,
            "if self._progress.misses_rows(partition, state.accepted, state.log_start):",
            _NEVER,
        ),
        (
            TableOpening,
            "if self._progress.misses_rows(partition, needed, state.log_start):",
            _NEVER,
        ),
    ],
}


class Protocol(NamedTuple):
    """The state machines and what they ask of a table."""

    coordinator_state: type[CoordinatorState]
    task_state: type[TaskState]
    look_up: Callable[[TableView], Lookup]


@cache
def protocol_without(rules: frozenset[Rule]) -> Protocol:
    """The protocol with these rules turned off."""
    if not rules:
        return Protocol(CoordinatorState, TaskState, ledger.look_up)
    judging = dict(vars(ledger))
    for function in (_JUDGE, _LOOK_UP):
        _changed(function, rules, judging)
    look_up = judging["look_up"]
    return Protocol(
        _changed(
            CoordinatorState,
            rules,
            {**vars(coordinator_state), **_parts(rules), "look_up": look_up},
        ),
        _changed(TaskState, rules, {**vars(task_state), "TaskPartition": _partition(rules)}),
        look_up,
    )


def _partition(rules: frozenset[Rule]) -> Any:
    """What a `TaskState` keeps of a partition, with these rules turned off."""
    return _changed(TaskPartition, rules, dict(vars(task_partition)))


def _parts(rules: frozenset[Rule]) -> dict[str, Any]:
    """What a `CoordinatorState` is made of, with these rules turned off."""
    return {
        part.__name__: _changed(part, rules, dict(vars(module)))
        for part, module in (
            (SourceProgress, source_progress),
            (TableOpening, table_opening),
            (CommitCycle, commit_cycle),
        )
    }


def coordinator_state_with(cycle: type[CommitCycle]) -> type[CoordinatorState]:
    """A `CoordinatorState` with other cycles."""
    made: type[CoordinatorState] = _changed(
        CoordinatorState, frozenset(), {**vars(coordinator_state), "CommitCycle": cycle}
    )
    return made


def _changed(original: Any, rules: frozenset[Rule], names: dict[str, Any]) -> Any:
    """The same function or class, made of its changed source, among these names of its module."""
    source = dedent(inspect.getsource(original))
    for rule in sorted(rules, key=lambda rule: rule.value):
        for changed, words, instead in _CHANGES[rule]:
            if changed is original:
                assert source.count(words) == 1, (
                    f"{rule.name}: {original.__name__} has these words no more: {words}"
                )
                source = source.replace(words, instead)
    exec(
        compile(source, f"<{original.__name__} changed>", "exec", annotations.compiler_flag), names
    )
    return names[original.__name__]
