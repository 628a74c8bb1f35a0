"""Tags, branches and roll-backs by command, and tags on schedule, on real tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer
from fixtures.command_line import command_app
from fixtures.iceberg_commands import table_commands
from fixtures.iceberg_commit import KEY, Lake, lake, order
from fixtures.short_form import short_form

from connectors.iceberg.commit.rules import scheduled_tags
from connectors.iceberg.config.expectations import Expectation
from connectors.iceberg.config.tag_schedule import TagPeriod, TagRule, parse_tags
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.ledger import Standing, look_up
from connectors.iceberg.protocol.own_refs import unpublished_branch
from connectors.iceberg_tools.commands.refs import branch, tag
from connectors.iceberg_tools.commands.rollback import rollback
from connectors.iceberg_tools.refs.ref_changes import move_branch

__all__ = ["lake"]

APP = command_app(branch, rollback, tag)
DAY = 86_400_000
BRANCH = unpublished_branch("connect-orders")


@pytest.fixture
def run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command that meets the Spark of this process."""
    return table_commands(lake, monkeypatch, APP)


def test_tags_are_set_listed_moved_and_removed(lake: Lake, run: Any) -> None:
    sink = lake.make()
    first = sink.commit(sink.stage([order(1, "a")])).snapshot_id
    second = sink.commit(sink.stage([order(1, "b")])).snapshot_id
    made = run("tag", sink.name, "before", "--at", "first", "--keep", "14d")
    assert (made.exit_code, made.stdout) == (0, f"{sink.name}: tag before is at snapshot {first}\n")
    assert (
        "RETAIN 20160 MINUTES"
        in json.loads(run("tag", sink.name, "later", "--keep", "14d", "--json").stdout)["sql"]
    )
    listed = json.loads(run("tag", sink.name, "--json").stdout)["refs"]
    assert {each["name"]: each["snapshot"] for each in listed} == {"before": first, "later": second}
    assert {each["name"]: each["source_offsets"] for each in listed}["before"] == {
        "orders": {"0": 10}
    }
    assert "orders-0:10" in run("tag", sink.name).stdout
    assert lake.rows(f"{sink.name}.tag_before", "number") == [(("number", "a"),)]
    taken = run("tag", sink.name, "before")
    assert taken.exit_code == 1
    assert "use --move to move it" in taken.stderr
    assert run("tag", sink.name, "before", "--move").exit_code == 0
    assert lake.catalog.table(sink.name).metadata().refs["before"] == second
    assert run("tag", sink.name, "main", "--move").exit_code == 1
    assert run("tag", sink.name, "before", "--delete").exit_code == 0
    assert run("tag", sink.name, "before", "--delete").exit_code == 1
    assert run("tag", sink.name, "x", "--keep", "often").exit_code == 2


def test_rollback_previews_then_moves_main_and_connector_refills(lake: Lake, run: Any) -> None:
    sink = lake.make()
    first = sink.commit(sink.stage([order(1, "a")])).snapshot_id
    second = sink.commit(sink.stage([order(1, "b")])).snapshot_id
    shown = run("rollback", sink.name, "--to", "first", "--dry-run")
    assert shown.exit_code == 0, shown.stderr
    assert f"{sink.name} (main): {second} -> {first}" in shown.stdout
    assert "connect-orders reads orders-0 again from 10 to 20" in shown.stdout
    assert lake.catalog.table(sink.name).metadata().refs["main"] == second
    document = json.loads(run("rollback", sink.name, "--to", str(first), "--yes", "--json").stdout)
    assert document["done"] is True
    assert document["connectors"] == [
        {"group": "connect-orders", "reads_again": {"orders:0": [10, 20]}, "refused": None}
    ]
    metadata = lake.catalog.table(sink.name).metadata()
    assert metadata.refs["main"] == first
    found = look_up(metadata.view("main", KEY))
    assert found.standing is Standing.ROLLED_BACK
    assert found.ledger is not None
    assert found.ledger.topics["orders"].partitions[0].next == 10
    # again: nothing to do
    assert run("rollback", sink.name, "--to", "first", "--yes").exit_code == 0
    refused = run("rollback", sink.name, "--to", str(second), "--yes")
    assert refused.exit_code == 1
    assert "not in the history of main" in refused.stderr


def test_rollback_does_not_move_a_branch_committed_to_meanwhile(lake: Lake) -> None:
    sink = lake.make()
    first, second = (
        int(sink.commit(sink.stage([order(1, number)])).snapshot_id or 0) for number in "ab"
    )
    sink.commit(sink.stage([order(1, "c")]))
    with pytest.raises(TableUnsuitableError, match="main has changed"):
        move_branch(lake.catalog, sink.name, "main", second, first)


def test_rollback_below_expired_commits_is_refused_by_ledger(lake: Lake, run: Any) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    lake.sql(
        f"CALL lake.system.rewrite_data_files(table => '{sink.name}', options => "
        f"map('rewrite-all','true'))"
    )
    kept = lake.catalog.table(sink.name).metadata().refs["main"]
    sink.commit(sink.stage([order(1, "b")]))
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{sink.name}', older_than => now(), "
        f"retain_last => 2)"
    )
    refused = run("rollback", sink.name, "--to", str(kept), "--yes")
    assert refused.exit_code == 1
    assert "connector group connect-orders" in refused.stderr
    assert lake.catalog.table(sink.name).metadata().refs["main"] != kept


@pytest.mark.parametrize("event", short_form(["held", "expired"], ["held"]))
def test_rollback_is_judged_again_after_the_question(
    lake: Lake, run: Any, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """While the user thinks, a commit is held from readers, or the ledger below the target is
    expired."""
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    lake.sql(
        f"CALL lake.system.rewrite_data_files(table => '{sink.name}', options => "
        f"map('rewrite-all','true'))"
    )
    kept = lake.catalog.table(sink.name).metadata().refs["main"]
    head = sink.commit(sink.stage([order(1, "b")])).snapshot_id

    def confirm(*_: Any, **__: Any) -> bool:
        if event == "held":
            gated = {
                "unpublished_branch": BRANCH,
                "expectations": (Expectation("good", "region != 'bad'"),),
            }
            assert sink.commit(sink.stage([order(1, "c", "bad")]), **gated).unpublished
        else:
            expired = f"table => '{sink.name}', older_than => now(), retain_last => 2"
            lake.sql(f"CALL lake.system.expire_snapshots({expired})")
        return True

    monkeypatch.setattr(typer, "confirm", confirm)
    refused = run("rollback", sink.name, "--to", str(kept))
    assert refused.exit_code == 2, refused.output
    assert {"held": "has unpublished commits", "expired": "connector group connect-orders: "}[
        event
    ] in refused.stderr
    assert lake.catalog.table(sink.name).metadata().refs["main"] == head


def test_a_branch_begins_at_a_state_and_goes_away(lake: Lake, run: Any) -> None:
    sink = lake.make()
    first = sink.commit(sink.stage([order(1, "a")])).snapshot_id
    sink.commit(sink.stage([order(1, "b")]))
    assert run("branch", sink.name, "trial", "--at", "first").exit_code == 0
    assert lake.catalog.table(sink.name).metadata().refs["trial"] == first
    assert "trial" in run("branch", sink.name).stdout
    assert run("branch", sink.name, "connect-py-scratch-1").exit_code == 1
    assert run("branch", sink.name, "main", "--delete").exit_code == 1
    assert run("tag", sink.name, "trial", "--move").exit_code == 1
    assert run("branch", sink.name, "trial", "--delete").exit_code == 0


@pytest.mark.parametrize("version", short_form([2, 3], [3]))
def test_first_commit_after_midnight_tags_the_days_last_state(
    lake: Lake, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = parse_tags("daily:keep 2d")
    sink = lake.make(version=version)
    first = sink.commit(sink.stage([order(1, "a")]), tags=rules).snapshot_id
    assert set(lake.catalog.table(sink.name).metadata().refs) == {"main"}
    made_at = lake.catalog.table(sink.name).metadata().snapshots[first or 0]["timestamp-ms"]
    midnight = TagPeriod.DAILY.start(made_at) + DAY
    monkeypatch.setattr(scheduled_tags.time, "time", lambda: midnight / 1000 + 60)
    sink.commit(sink.stage([order(1, "a", "south")]), tags=rules)
    name = TagPeriod.DAILY.name_before(midnight, "main")
    metadata = lake.catalog.table(sink.name).metadata()
    assert metadata.refs[name] == first
    assert metadata.tags == {name}
    sink.commit(sink.stage([order(1, "b")]), tags=rules)  # on the same day: nothing more
    assert lake.catalog.table(sink.name).metadata().tags == {name}
    monkeypatch.setattr(scheduled_tags.time, "time", lambda: midnight / 1000 + 3 * DAY / 1000)
    sink.commit(sink.stage([order(1, "c")]), tags=(TagRule(TagPeriod.HOURLY, 9 * DAY), *rules))
    assert [tag.partition("-")[0] for tag in lake.catalog.table(sink.name).metadata().tags] == [
        "hourly"
    ]
