"""Audits of a real table: manifests and summaries, intact and damaged."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures.iceberg_commit import Lake, Sink, lake, lake_config, order
from short_form import short_form

from connectors.iceberg.table.table import StagedKind, WriteMode
from connectors.iceberg_tools.audit.table_audit import AuditReport, Verdict, audit

__all__ = ["lake"]


def look(sink: Sink) -> AuditReport:
    return audit(sink.lake.catalog.history(sink.name, "main"))


def kinds(report: AuditReport) -> set[str]:
    return {f.kind for f in report.files} | {
        f.kind for group in report.groups for f in group.violations
    }


@pytest.mark.parametrize("mode", short_form(WriteMode, [WriteMode.MERGE]))
def test_commits_of_ours_and_maintenance_of_others_are_proven(mode: WriteMode, lake: Lake) -> None:
    sink = lake.make(mode=mode)
    for number in range(3):
        sink.commit(sink.stage([order(1, f"a{number}"), order(1, "b")]))
    if mode is WriteMode.MERGE:
        sink.commit(sink.stage([{"shop": 1, "number": "b"}], StagedKind.DELETES))
    lake.sql(
        f"CALL lake.system.rewrite_data_files(table => '{sink.name}', options => "
        f"map('min-input-files','2'))"
    )
    sink.commit(sink.stage([order(1, "c")]))
    report = look(sink)
    assert report.verdict is Verdict.PROVEN, report.to_json()
    [group] = report.groups
    commits = 5 if mode is WriteMode.MERGE else 4
    assert [(s.first, s.next, s.commits) for s in group.segments] == [(0, 10 * commits, commits)]
    assert [finding.text.split(" by ")[0] for finding in report.foreign] == ["replace"]


@pytest.mark.parametrize(
    ("mode", "version"),
    short_form(itertools.product(WriteMode, (2, 3)), [(WriteMode.MERGE, 3)]),
)
def test_rows_that_others_deleted_added_or_replaced_are_named(
    mode: WriteMode, version: int, lake: Lake
) -> None:
    sink = lake.make(mode=mode, version=version, **{"write.delete.mode": "merge-on-read"})
    sink.commit(sink.stage([order(1, f"a{number}") for number in range(5)]))
    lake.sql(f"DELETE FROM lake.{sink.name} WHERE number = 'a1'")
    sink.commit(sink.stage([order(2, "mine")]))
    assert look(sink).verdict is Verdict.CHANGED
    lake.sql(f"INSERT INTO lake.{sink.name} SELECT * FROM lake.{sink.name} LIMIT 1")
    lake.sql(f"DELETE FROM lake.{sink.name}")
    report = look(sink)
    assert report.verdict is Verdict.CHANGED, report.to_json()
    texts = [finding.text.partition(": ")[2].partition(";")[0] for finding in report.changes]
    assert len(texts) == 3
    vectors = ", 1 deletion vector added" if version == 3 else ""
    assert texts[0] == f"1 row deleted by position{vectors}"
    assert texts[1] == "1 row added"
    assert "7 rows in removed files" in texts[2]
    assert report.groups[0].verdict is Verdict.PROVEN


def test_a_data_file_that_is_in_twice_is_found(lake: Lake) -> None:
    sink = lake.make(mode=WriteMode.APPEND)
    sink.commit(sink.stage([order(1, "a")]))
    table: Any = lake.catalog.table(sink.name).java_table
    table.newFastAppend().appendFile(
        table.currentSnapshot().addedDataFiles(table.io()).iterator().next()
    ).commit()
    assert kinds(look(sink)) == {"file_live_twice", "file_added_twice"}


def test_a_commit_whose_range_was_counted_before_is_found(lake: Lake) -> None:
    sink = lake.make(mode=WriteMode.APPEND)
    sink.commit(sink.stage([order(1, "a")]))
    sink.cycle = 0  # somebody's bug: the same offsets again
    sink.commit(sink.stage([order(1, "a")]))
    assert kinds(look(sink)) == {"overlap", "cycle_goes_back"}


@pytest.mark.long
@pytest.mark.timeout(400)  # starts Spark three times
def test_the_command_says_it_to_people_and_to_machines(lake: Lake) -> None:
    sink = lake.make(mode=WriteMode.APPEND)
    sink.commit(sink.stage([order(1, "a")]))
    settings = lake_config(lake.folder).catalog_properties
    options = [
        word for key, value in settings.items() for word in ("--catalog-property", f"{key}={value}")
    ]
    command = [
        str(Path(sys.executable).with_name("connect-py")),
        "audit",
        sink.name,
        "--catalog",
        "lake",
        *options,
    ]
    told = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, timeout=100, check=False
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["verdict"] == "proven"
    lake.sql(f"INSERT INTO lake.{sink.name} SELECT * FROM lake.{sink.name}")
    connector, worker = lake.folder / "orders.json", lake.folder / "worker.properties"
    connector.write_text(
        json.dumps({"name": "orders", "topics": "orders", "iceberg.tables": sink.name})
    )
    defaults = {
        "iceberg.catalog": "lake",
        **{f"iceberg.catalog.{key}": value for key, value in settings.items()},
    }
    worker.write_text(
        "".join(f"connect_py.defaults.{key}={value}\n" for key, value in defaults.items())
    )
    by_worker = [*command[:3], "--config", str(connector), "--worker", str(worker)]
    told = subprocess.run(
        [*by_worker, "--json"], capture_output=True, text=True, timeout=100, check=False
    )
    assert told.returncode == 3, told.stderr
    assert json.loads(told.stdout)["verdict"] == "changed"
    lake.sql(
        f"ALTER TABLE lake.{sink.name} UNSET TBLPROPERTIES ('connect-py.ledger.connect-orders')"
    )
    told = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert told.returncode == 1
    assert "VIOLATED the table property is gone" in told.stdout
