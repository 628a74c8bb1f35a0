"""`connect-py rebuild --from-topics` on a real broker and Spark; `connect-py load` replaces the
running connector.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from fixtures.command_line import command_app
from fixtures.iceberg_commit import Lake, lake
from fixtures.loaded_shop import Shop, shop, state
from typer.testing import CliRunner

from connectors.iceberg_tools.audit.table_audit import Verdict, audit
from connectors.iceberg_tools.commands import rebuild_topics
from connectors.iceberg_tools.commands.rebuild import rebuild
from connectors.iceberg_tools.commands.rebuild_topics import TopicsRebuild

__all__ = ["lake", "shop"]


def rebuilt(shop: Shop, folder: Path, *words: str, **more: str) -> tuple[int, dict[str, Any]]:
    file = folder / "rebuilt.json"
    file.write_text(json.dumps({"name": shop.name, "config": shop.config(**more)}))
    app = command_app(rebuild, parts=shop.parts)
    words = (
        shop.table,
        "--config",
        str(file),
        "--from-topics",
        "--bootstrap-server",
        shop.servers,
        "--json",
        *words,
    )
    done: Result = CliRunner().invoke(app, list(words))
    if done.exit_code == 2:
        return 2, {"error": done.output}
    assert done.exit_code in (0, 1), done.output
    return done.exit_code, json.loads(done.stdout)


def refs(lake: Lake, table: str) -> list[str]:
    return sorted(
        row[0] for row in lake.catalog.spark.sql(f"SELECT name FROM lake.{table}.refs").collect()
    )


@pytest.mark.long
@pytest.mark.timeout(300)  # three loads and four rebuilds
def test_damage_is_found_and_mended_and_the_connector_follows(
    shop: Shop, lake: Lake, tmp_path: Path
) -> None:
    for key in range(10):
        shop.change("c", key, f"first {key}")
    shop.change("d", 9, None)
    shop.loaded()
    wanted = state(lake, shop.table)
    lake.catalog.spark.sql(f"DELETE FROM lake.{shop.table} WHERE id < 3")
    shop.change("u", 5, "second")  # that the table does not have yet
    status, found = rebuilt(shop, tmp_path, "--step-rows", "4")
    assert (status, found["published"], found["records"]) == (1, False, 11)
    assert found["difference"]["counts"] == {
        "inserted": 3,
        "updated": 0,
        "deleted": 0,
        "several_rows": 0,
    }
    assert state(lake, shop.table) == wanted[3:]  # readers see nothing of it yet
    status, found = rebuilt(shop, tmp_path, "--publish")
    assert (status, found["published"], found["resumed"], found["records"]) == (0, True, True, 0)
    assert state(lake, shop.table) == wanted
    assert refs(lake, shop.table) == ["connect-py-before-rebuild", "main"]
    report = shop.loaded()
    assert report["records"] == 1
    assert (5, "second") in state(lake, shop.table)
    assert len(state(lake, shop.table)) == 9
    lake.catalog.spark.sql(f"INSERT INTO lake.{shop.table} (id, name) VALUES (99, 'by hand')")
    # a second time: the first rebuild is in the table's history
    status, found = rebuilt(shop, tmp_path, "--publish")
    assert (status, found["published"], found["resumed"], found["records"]) == (1, False, False, 12)
    assert (
        found["refused"] == "1 row of the table would be missing; --allow-missing publishes anyway"
    )
    assert len(state(lake, shop.table)) == 10
    status, found = rebuilt(shop, tmp_path, "--publish", "--allow-missing")
    assert (status, found["published"], found["resumed"], found["records"]) == (0, True, True, 0)
    assert len(state(lake, shop.table)) == 9
    report = audit(lake.catalog.history(shop.table, "main"), f"connect-{shop.name}")
    assert report.verdict is Verdict.CHANGED  # by the damage
    assert [each.kind for each in report.foreign] == [
        "foreign_change",
        "rebuild",
        "foreign_change",
        "rebuild",
    ]
    assert [each.verdict for each in report.groups] == [Verdict.PROVEN] * 3


# in every run: test_every_row_of_a_mirror_comes_from_its_log, and loads in test_iceberg_load.py
@pytest.mark.long
@pytest.mark.parametrize(("tries", "behind", "again"), [(1, False, 0), (3, True, 1)])
def test_rebuild_catches_up_with_a_table_that_goes_on(
    shop: Shop,
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tries: int,
    behind: bool,
    again: int,
) -> None:
    for key in range(6):
        shop.change("c", key, "first")
    shop.loaded()
    lake.catalog.spark.sql(f"DELETE FROM lake.{shop.table} WHERE id = 0")
    further, lives = TopicsRebuild._further, []

    def while_it_goes_on(rebuild: TopicsRebuild, client: Any) -> Any:
        if len(lives) < tries:
            shop.change("u", len(lives) + 1, "second")
            shop.loaded()
        lives.append(rebuild.result.difference)
        return further(rebuild, client)

    monkeypatch.setattr(TopicsRebuild, "_further", while_it_goes_on)
    monkeypatch.setattr(rebuild_topics, "EXACT_TRIES", 2)
    status, found = rebuilt(shop, tmp_path, "--publish")
    assert (status, found["published"], found["behind"], len(lives)) == (
        0,
        True,
        behind,
        tries + (not behind),
    )
    assert found["difference"]["counts"]["inserted"] == 1
    assert shop.loaded()["records"] == again
    assert state(lake, shop.table) == [
        (n, "second" if 1 <= n <= tries else "first") for n in range(6)
    ]
