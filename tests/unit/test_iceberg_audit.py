"""The audit finds every kind of damage, and none in intact ledgers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures.command_line import command_app
from typer.testing import CliRunner

from connect_py.api.record import TopicPartition
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerEntry,
    LedgerProperty,
    TopicLedger,
    ledger_key,
    source_offsets_key,
)
from connectors.iceberg.protocol.positions import Epoch, Position
from connectors.iceberg.table.table_history import HistoricSnapshot, TableHistory
from connectors.iceberg_tools.audit.table_audit import AuditReport, Verdict, audit
from connectors.iceberg_tools.commands.audit import _lines
from connectors.iceberg_tools.commands.audit import audit as audit_command

GROUP = "connect-orders"
KEY = ledger_key(GROUP)
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
Entries = Mapping[int, tuple[int, int, int]]


def ledger(
    cycle: int, entries: Entries, epoch: tuple[int, str] = (7, "a1"), topic: str = "T1"
) -> Ledger:
    partitions = {number: LedgerEntry(*entry) for number, entry in entries.items()}
    return Ledger(
        Epoch(*epoch),
        f"c{epoch[0]}-{cycle}",
        cycle,
        "U1",
        "K1",
        {"orders": TopicLedger(topic, partitions)},
    )


def snapshot(number: int, of: Ledger | None, operation: str = "append") -> HistoricSnapshot:
    if of is None:
        return HistoricSnapshot(
            number, number, operation, {"engine-name": "spark", "added-records": "5"}
        )
    summary = {
        KEY: of.to_json(),
        source_offsets_key(GROUP): of.source_offsets(),
        "kafka.connect.commit-id": of.commit,
    }
    return HistoricSnapshot(
        number, number, operation, summary, (f"{of.epoch.number}-{of.epoch.nonce}",)
    )


def table(*ledgers: Ledger | None, **more: object) -> TableHistory:
    """Snapshots 1, 2, …, oldest first, and the property as the last commit leaves it. None: a
    commit of others."""
    chain = [
        snapshot(number, each, "replace" if each is None else "append")
        for number, each in enumerate(ledgers, 1)
    ]
    ours = [(s, each) for s, each in zip(chain, ledgers, strict=True) if each is not None]
    properties = {}
    if ours:
        first = ours[0][1].topics["orders"].partitions
        opened = {
            TopicPartition("orders", number): Position(e.generation, e.base)
            for number, e in first.items()
        }
        properties[GROUP] = LedgerProperty(ours[-1][1], ours[-1][0].id, opened).to_json()
    history = TableHistory(
        "db.orders",
        "main",
        "U1",
        True,
        properties,
        chain[::-1],
        True,
        {s.id: frozenset(s.groups) for s in chain},
        live_files=9,
    )
    return replace(history, **more)  # type: ignore[arg-type]


CYCLE_1 = ledger(1, {0: (0, 0, 10), 1: (0, 5, 5)})
CYCLE_2 = ledger(2, {0: (0, 10, 20), 1: (0, 5, 9)})
CYCLE_4 = ledger(4, {0: (0, 20, 31), 1: (0, 9, 9)})
WHOLE = (CYCLE_1, CYCLE_2, CYCLE_4)


def kinds(report: AuditReport) -> set[str]:
    return {f.kind for g in report.groups for f in g.violations} | {f.kind for f in report.files}


def notes(report: AuditReport) -> set[str]:
    return {finding.kind for group in report.groups for finding in group.notes}


def test_a_whole_chain_is_proven_and_its_ranges_are_told() -> None:
    report = audit(table(*WHOLE))
    assert report.verdict is Verdict.PROVEN
    [group] = report.groups
    assert [(s.partition, s.first, s.next, s.commits) for s in group.segments] == [
        (P0, 0, 31, 3),
        (P1, 5, 9, 3),
    ]
    assert not group.notes


def test_commits_of_others_are_named_and_break_nothing() -> None:
    report = audit(table(CYCLE_1, None, CYCLE_2))
    assert report.verdict is Verdict.PROVEN
    assert [(f.kind, f.snapshot) for f in report.foreign] == [("foreign_commit", 2)]
    assert "replace by spark" in report.foreign[0].text


@pytest.mark.parametrize(
    ("operation", "counts", "told"),
    [
        (
            "delete",
            {"added-position-deletes": "3", "added-dvs": "1"},
            "3 rows deleted by position, 1 deletion vector",
        ),
        (
            "overwrite",
            {"added-equality-deletes": "2", "added-records": "2"},
            "2 rows added, 2 equality deletes added",
        ),
        ("delete", {"deleted-records": "7"}, "7 rows in removed files"),
        ("append", {"added-records": "1"}, "1 row added"),
        (
            "overwrite",
            {"removed-dvs": "1", "removed-position-deletes": "4"},
            "4 position deletes removed, 1 deletion",
        ),
        ("overwrite", {"removed-equality-deletes": "1"}, "1 equality delete removed"),
        ("append", {}, "without counts"),
    ],
)
def test_foreign_row_changes_are_named_and_get_the_changed_verdict(
    operation: str, counts: Mapping[str, str], told: str
) -> None:
    history = table(CYCLE_1, None, CYCLE_2)
    foreign = replace(
        history.ancestors[1], operation=operation, summary={"engine-name": "spark", **counts}
    )
    report = audit(
        replace(history, ancestors=[history.ancestors[0], foreign, history.ancestors[2]])
    )
    assert report.verdict is Verdict.CHANGED
    assert [(f.kind, f.snapshot) for f in report.changes] == [("foreign_change", 2)]
    assert f"{operation} by spark: {told}" in report.changes[0].text
    assert report.to_json()["verdict"] == "changed"
    lines = list(_lines(report))
    assert any(line.startswith(f"  CHANGED {operation} by spark") for line in lines)
    assert lines[-1] == "\nchanged"


@pytest.mark.parametrize(
    "counts", [{"total-records": "9"}, {"added-records": "0", "deleted-records": "0"}]
)
def test_a_commit_of_others_without_rows_changes_nothing(counts: Mapping[str, str]) -> None:
    history = table(CYCLE_1, None, CYCLE_2)
    foreign = replace(history.ancestors[1], operation="overwrite", summary=counts)
    report = audit(
        replace(history, ancestors=[history.ancestors[0], foreign, history.ancestors[2]])
    )
    assert report.verdict is Verdict.PROVEN
    assert [f.kind for f in report.foreign] == ["foreign_commit"]


def test_violated_or_undecided_verdict_wins_over_foreign_changes() -> None:
    change = HistoricSnapshot(9, 9, "delete", {"deleted-records": "1"})
    broken = table(CYCLE_1, CYCLE_4)
    assert audit(replace(broken, ancestors=[change, *broken.ancestors])).verdict is Verdict.VIOLATED
    beside = table(CYCLE_1, ref="side", ref_exists=False)
    assert (
        audit(replace(beside, ancestors=[change, *beside.ancestors])).verdict is Verdict.UNDECIDED
    )


def test_a_rewind_and_a_skip_on_purpose_are_explained() -> None:
    back = ledger(1, {0: (1, 3, 20), 1: (0, 9, 9)}, (8, "b"))
    forward = ledger(2, {0: (2, 500, 600), 1: (0, 9, 9)}, (8, "b"))
    report = audit(table(CYCLE_1, CYCLE_2, back, forward))
    assert report.verdict is Verdict.PROVEN
    texts = [f.text for f in report.groups[0].notes]
    assert texts == [
        "orders-0: deliberately moved backward, from 20 to 3 (generation 1)",
        "orders-0: deliberately moved forward, from 20 to 500 (generation 2)",
    ]


def test_a_topic_that_was_created_again_begins_a_new_chain() -> None:
    report = audit(table(CYCLE_1, ledger(1, {0: (0, 0, 4), 1: (0, 0, 0)}, (8, "b"), topic="T2")))
    assert (report.verdict, notes(report)) == (Verdict.PROVEN, {"topic_created_again"})


def test_audit_of_expired_snapshots_is_proven_with_a_note() -> None:
    history = table(CYCLE_2, CYCLE_4, complete=False)
    opened = {P0: Position(0, 0), P1: Position(0, 5)}
    report = audit(
        replace(history, properties={GROUP: LedgerProperty(CYCLE_4, 2, opened).to_json()})
    )
    assert (report.verdict, notes(report)) == (Verdict.PROVEN, {"expired", "history_cut"})


def test_rolled_back_table_is_proven_up_to_its_rollback() -> None:
    history = table(CYCLE_1, CYCLE_2)
    beside = {**history.present, 3: frozenset({GROUP})}
    of_3 = LedgerProperty(CYCLE_4, 3, {P0: Position(0, 0), P1: Position(0, 5)}).to_json()
    report = audit(replace(history, present=beside, properties={GROUP: of_3}))
    assert (report.verdict, notes(report)) == (Verdict.PROVEN, {"rolled_back", "not_ancestors"})


def test_topic_may_leave_and_return_at_its_last_offset() -> None:
    left = replace(ledger(3, {}), topics={"others": TopicLedger("O1", {0: LedgerEntry(0, 0, 4)})})
    report = audit(table(CYCLE_1, CYCLE_2, left, CYCLE_4))
    assert (report.verdict, notes(report)) == (Verdict.PROVEN, {"topic_left_out"})
    come_back_wrong = ledger(4, {0: (0, 0, 31), 1: (0, 9, 9)})
    assert kinds(audit(table(CYCLE_1, CYCLE_2, left, come_back_wrong))) == {"overlap"}


DAMAGED: dict[str, TableHistory] = {
    "gap": table(
        CYCLE_1, replace(CYCLE_2, topics=ledger(2, {0: (0, 12, 20), 1: (0, 5, 9)}).topics)
    ),
    "overlap": table(CYCLE_1, ledger(2, {0: (0, 9, 20), 1: (0, 5, 9)})),
    "range_goes_back": table(CYCLE_1, ledger(2, {0: (0, 10, 8), 1: (0, 5, 9)})),
    "generation_goes_back": table(ledger(1, {0: (1, 0, 10)}), ledger(2, {0: (0, 10, 20)})),
    "epoch_goes_back": table(CYCLE_1, ledger(2, {0: (0, 10, 20), 1: (0, 5, 9)}, (6, "z"))),
    "cycle_goes_back": table(CYCLE_1, replace(CYCLE_2, cycle=1)),
    "commit_twice": table(CYCLE_1, CYCLE_2, replace(CYCLE_4, commit=CYCLE_1.commit)),
    "cluster_differs": table(CYCLE_1, replace(CYCLE_2, cluster="K2")),
    "partition_missing": table(CYCLE_1, ledger(2, {0: (0, 10, 20)})),
    "ledger_unreadable": table(
        CYCLE_1,
        ancestors=[
            HistoricSnapshot(2, 2, "append", {KEY: '{"v":1,"epoch":"somebody typed here"}'}),
            snapshot(1, CYCLE_1),
        ],
    ),
    "commit_id_differs": table(
        CYCLE_1,
        ancestors=[
            replace(
                snapshot(1, CYCLE_1),
                summary={**snapshot(1, CYCLE_1).summary, "kafka.connect.commit-id": "x"},
            )
        ],
    ),
    "source_offsets_differ": table(
        CYCLE_1,
        ancestors=[
            replace(
                snapshot(1, CYCLE_1),
                summary={**snapshot(1, CYCLE_1).summary, source_offsets_key(GROUP): "{}"},
            )
        ],
    ),
    "files_of_other_epoch": table(
        CYCLE_1, ancestors=[replace(snapshot(1, CYCLE_1), stagers=("6-z", "7-a1"))]
    ),
    "beginning_differs": table(
        CYCLE_1,
        properties={
            GROUP: LedgerProperty(CYCLE_1, 1, {P0: Position(0, 3), P1: Position(0, 5)}).to_json()
        },
    ),
    "property_missing": table(CYCLE_1, properties={}),
    "property_unreadable": table(CYCLE_1, properties={GROUP: "{"}),
    "property_differs": table(
        CYCLE_1,
        CYCLE_2,
        properties={
            GROUP: LedgerProperty(CYCLE_1, 2, {P0: Position(0, 0), P1: Position(0, 5)}).to_json()
        },
    ),
    "property_behind": table(
        CYCLE_1,
        CYCLE_2,
        properties={
            GROUP: LedgerProperty(CYCLE_1, 1, {P0: Position(0, 0), P1: Position(0, 5)}).to_json()
        },
    ),
    "file_live_twice": table(CYCLE_1, live_twice=("data/a.parquet",)),
    "file_added_twice": table(CYCLE_1, CYCLE_2, added_twice=(("data/a.parquet", 1, 2),)),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_ledger_history_is_violated_and_names_the_damage(kind: str) -> None:
    report = audit(DAMAGED[kind])
    assert report.verdict is Verdict.VIOLATED
    assert kind in kinds(report)
    assert json.loads(json.dumps(report.to_json()))["verdict"] == "violated"
    assert any(line.lstrip().startswith("VIOLATED") for line in _lines(report))


@pytest.mark.parametrize(
    ("history", "kind"),
    [
        (table(None), "no_ledger"),
        (table(CYCLE_1, ref="side", ref_exists=False), "no_ref"),
        (
            table(CYCLE_1, ancestors=[snapshot(9, None)], complete=False, present={9: frozenset()}),
            "all_expired",
        ),
        (replace(table(CYCLE_1), ancestors=[]), "rolled_back"),
        (
            table(CYCLE_1, ancestors=[HistoricSnapshot(1, 1, "append", {KEY: '{"v":99}'})]),
            "ledger_too_new",
        ),
        (table(CYCLE_1, properties={GROUP: '{"v":99}'}), "property_too_new"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_told_is_not_called_proven(history: TableHistory, kind: str) -> None:
    report = audit(history)
    assert report.verdict is Verdict.UNDECIDED
    found = {f.kind for f in report.undecided} | {
        f.kind for group in report.groups for f in group.undecided
    }
    assert kind in found
    assert "proven" not in "".join(_lines(report)) or kind == "no_ref"


def test_a_ledger_that_was_copied_from_another_table_is_ignored() -> None:
    report = audit(replace(table(CYCLE_1, CYCLE_2), uuid="U2"))
    assert report.verdict is Verdict.UNDECIDED
    assert notes(report) == {"ledger_of_other_table", "property_of_other_table"}
    assert report.groups[0].commits == 0


def test_an_audit_without_a_catalog_says_what_to_give(tmp_path: Path) -> None:
    app = command_app(audit_command)
    told = CliRunner().invoke(app, ["db.orders"])
    assert told.exit_code == 2
    assert "--catalog-property" in told.output
    connector = tmp_path / "c.json"
    connector.write_text(
        json.dumps({"name": "c", "config": {"iceberg.catalog.token": "${env:TOKEN}"}})
    )
    told = CliRunner().invoke(app, ["db.orders", "--config", str(connector)])
    assert told.exit_code == 2
    assert "iceberg.catalog.token: uses a config provider" in told.output
