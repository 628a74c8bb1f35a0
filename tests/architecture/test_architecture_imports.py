"""The import contract in `pyproject.toml` holds, and covers all modules."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import import_circles
import pytest

ROOT = Path(__file__).parents[2]
COLUMNS_AND_SPARK = ("pyarrow", "pyspark", "py4j", "pyiceberg", "fastavro")
SEEN_BY_PLUGINS = {
    f"connect_py.{name}" for name in ("api", "columns", "java", "tls", "process", "plurals")
}
# they have separate contracts
OUTSIDE_THE_LAYERS = {"connect_py.converters", "connect_py.testing"}
FRONT_PROCESS = (
    "connect_py.cli",
    "connect_py.distributed_worker",
    "connect_py.herder.distributed_herder",
    "connect_py.worker.worker",
    "connect_py.kafka.client_config",
    "connect_py.plugins.plugin_registry",
    "connect_py.storage.config_store",
    "connect_py.storage.offset_store",
    "connect_py.storage.status_store",
    "rest.app",
    "rest.server",
)


def _contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return found


def _contract(name: str) -> dict[str, Any]:
    return next(contract for contract in _contracts() if contract["name"] == name)


def _layered() -> set[str]:
    layers = _contract("A reader and a record travel one way")["layers"]
    return {module.strip() for layer in layers for module in re.split("[|:]", layer)}


def _parts_of_the_runtime() -> set[str]:
    entries = (ROOT / "connect_py").iterdir()
    names = {e.stem for e in entries if (e / "__init__.py").exists() or e.suffix == ".py"}
    return {f"connect_py.{name}" for name in names - {"__init__"}}


def _loaded_after(statements: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter holds after these statements."""
    program = (
        f"{statements}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in "
        f"sys.modules}}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return set(answer.stdout.split())


def test_import_linter_reports_no_broken_import_contract() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    answer = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_import_circles_between_modules_are_found_and_listed() -> None:
    assert list(import_circles.circles({"a": ["b"], "b": ["c"], "c": ["a", "b"], "d": ["a"]})) == [
        ["a", "b", "c", "a"],
        ["b", "c", "b"],
    ]


def test_functions_and_type_checkers_import_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        "rest/__init__.py": "",
        "rest/app.py": "if TYPE_CHECKING:\n    from rest.pages import Page\n",
        "rest/pages/__init__.py": "def page():\n    import rest.app\n",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(import_circles, "ROOT", tmp_path)
    assert [set(circle) for circle in import_circles.circles(import_circles.imports())] == [
        {"rest.app", "rest.pages"}
    ]


def test_every_runtime_package_has_a_place_in_the_layers() -> None:
    assert _parts_of_the_runtime() - _layered() == OUTSIDE_THE_LAYERS


def test_plugins_may_import_only_the_api_and_its_building_blocks() -> None:
    contract = _contract("Plugins see connect_py.api and its building blocks only")
    closed = set(contract["forbidden_modules"]) | set(contract["source_modules"])
    assert _parts_of_the_runtime() - closed == SEEN_BY_PLUGINS


def test_the_core_imports_no_plugin_wherever_it_is_written() -> None:
    core = set(_contract("The core loads plugins by name, never by import")["source_modules"])
    low = ("log_context", "model", "clock", "metrics", "secret_mask")
    too_low_to_matter = {f"connect_py.{name}" for name in low}
    assert _parts_of_the_runtime() - core - too_low_to_matter == {"connect_py.converters"}


@pytest.mark.parametrize("module", FRONT_PROCESS)
def test_the_front_process_has_no_column_library_and_no_spark(module: str) -> None:
    assert _loaded_after(f"import {module}").isdisjoint(COLUMNS_AND_SPARK)


def test_listing_plugins_imports_no_plugin_pyarrow_or_spark() -> None:
    loaded = _loaded_after(
        "from connect_py.plugins.plugin_registry import "
        "PluginRegistry\nPluginRegistry.discover().available()"
    )
    assert loaded.isdisjoint(COLUMNS_AND_SPARK)


def test_the_api_needs_the_standard_library_only() -> None:
    modules = sorted(path.stem for path in (ROOT / "connect_py" / "api").glob("*.py"))
    imports = "\n".join(f"import connect_py.api.{name}" for name in modules)
    idle = _loaded_after("pass")
    assert _loaded_after(imports) - idle - set(sys.stdlib_module_names) == {"connect_py"}


def test_the_iceberg_sink_starts_without_its_tools() -> None:
    program = (
        "import sys\n"
        "from importlib import import_module\n"
        "sys.modules['connectors.iceberg_tools'] = None  # importing it raises an error\n"
        "import connectors.iceberg as sink\n"
        "for name in (*sink.PRELOAD, 'connectors.iceberg.driver.driver_program'):\n"
        "    import_module(name)"
    )
    assert {"connectors", "pyarrow"} <= _loaded_after(program)
