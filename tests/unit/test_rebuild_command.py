"""`connect-py rebuild` before it asks anything: options of the other source, and where the table
is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import Result
from fixtures.command_line import command_app, fake_parts
from typer.testing import CliRunner

from connect_py.api.sink_host import SinkHost
from connect_py.config.properties_file import read_properties
from connectors.iceberg_tools.commands.rebuild import rebuild
from connectors.iceberg_tools.commands.table_options import LocalTable


class Host:
    def __init__(self, _connector: Any, worker: Path | None, _settings: Any) -> None:
        self._props = read_properties(worker) if worker is not None else {}

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        return {key: value for key, value in self._props.items() if key.startswith(prefix)}


PARTS = fake_parts(
    sink_host=lambda *arguments: cast(SinkHost, Host(*arguments)),
    resolve=lambda connector, _worker: dict(connector),
)


def run(folder: Path, *words: str) -> Result:
    file = folder / "sink.json"
    config = {"topics": "orders", "iceberg.tables": "shop.orders"}
    file.write_text(json.dumps({"name": "sink", "config": config}))
    app = command_app(rebuild, parts=PARTS)
    return CliRunner().invoke(app, ["shop.orders", "--config", str(file), *words])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--bootstrap-server", "a:1"), "--bootstrap-server: needs --from-topics"),
        (("--master", "yarn"), "--master: needs"),
        (("--conf", "spark.a=b"), "--conf: needs"),
        (("--kafka-property", "a=b"), "--kafka-property: needs"),
        (("--archive", "/"), "--archive: needs"),
        (("--step-rows", "2000000"), "--step-rows: needs"),
        (("--split", "1"), "--split: needs"),
        (("--from-topics", "--timeout", "5"), "--timeout: cannot be combined with --from-topics"),
        (("--from-topics", "--at", "last"), "--at: cannot be combined"),
        (("--from-topics", "--create"), "--create: cannot be combined"),
        (("--from-topics", "--changelog", "a.b"), "--changelog: cannot be combined"),
    ],
)
def test_options_of_the_other_source_are_refused_by_name(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    refused = run(tmp_path, *words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"connect-py: {why}")


def test_worker_brings_catalog_and_spark_to_a_change_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[LocalTable] = []

    def refuse(place: LocalTable, _seconds: float) -> None:
        opened.append(place)
        raise ValueError("seen")

    monkeypatch.setattr(LocalTable, "open", refuse)
    worker = tmp_path / "worker.properties"
    worker.write_text(
        "connect_py.defaults.iceberg.catalog.type=rest\n"
        "connect_py.defaults.iceberg.catalog.uri=http://catalog\n"
        "connect_py.spark.driver.extraJavaOptions=-Dtrust=1\n"
    )
    ended = run(tmp_path, "--worker", str(worker), "--changelog", "shop.log")
    assert (ended.exit_code, ended.stderr.splitlines()[-1]) == (2, "connect-py: seen")
    (place,) = opened
    assert place.spark.catalog_properties == {"type": "rest", "uri": "http://catalog"}
    assert place.spark.spark_properties == {"spark.driver.extraJavaOptions": "-Dtrust=1"}
