"""The types of `connect_py.api` from a plugin author's side: strict mypy, without this repository's
settings."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from connect_py.api.record import TopicPartition
from connect_py.testing import FakeSinkTaskContext, sink_record

ROOT = Path(__file__).parents[2]
SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture(scope="module")
def mypy_answer(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("author")
    settings = folder / "mypy.ini"
    settings.write_text(
        "[mypy]\nstrict = True\nfollow_imports = silent\n[mypy-pyarrow.*]\nignore_missing_imports "
        "= True\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(settings),
        "--cache-dir",
        str(folder / "cache"),
    ]
    files = [str(SAMPLES / name) for name in ("shouting_plugins.py", "wrong_plugins.py")]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    answer = subprocess.run(
        [*command, *files],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert answer.returncode in (0, 1), answer.stdout + answer.stderr
    return answer.stdout.splitlines()


def test_a_plugin_of_every_kind_passes_a_strict_type_check(mypy_answer: list[str]) -> None:
    assert [line for line in mypy_answer if "shouting_plugins.py" in line] == []


def test_mistakes_of_plugin_authors_are_found(mypy_answer: list[str]) -> None:
    found = {
        (int(match[1]), match[2])
        for line in mypy_answer
        if (match := re.search(r"wrong_plugins\.py:(\d+): error: .*\[([a-z-]+)\]", line))
    }
    marked = {
        (number, match[1])
        for number, line in enumerate((SAMPLES / "wrong_plugins.py").read_text().splitlines(), 1)
        if (match := re.search(r"# mypy: ([a-z-]+)", line))
    }
    assert found == marked


def test_the_sample_runs_on_the_fakes_that_we_ship() -> None:
    spec = importlib.util.spec_from_file_location(
        "shouting_plugins", SAMPLES / "shouting_plugins.py"
    )
    assert spec is not None
    assert spec.loader is not None
    sample = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sample)
    task, context = sample.ListSinkTask(), FakeSinkTaskContext(topics={"orders": 1})
    task.initialize(context)
    task.start({"limit": "2"})
    orders = TopicPartition("orders", 0)
    task.open(context.assign(orders))
    task.put([sink_record("orders", value="a", offset=7)])
    assert task.rows == ["a"]
    assert task.pre_commit({orders: 9}) == {orders: 8}
