"""Which module may import which: the contract in `pyproject.toml` holds, and leaves nobody out."""

from __future__ import annotations

import graphlib
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import grimp
import pytest

ROOT = Path(__file__).parents[2]
COLUMNS_AND_SPARK = ("pyarrow", "pyspark", "py4j", "pyiceberg", "fastavro")
SEEN_BY_PLUGINS = {"connect_py.api"}
WITHOUT_CIRCLES = (
    "connectors",
    "rest",
    "connect_py.converters",
    "connect_py.herder",
    "connect_py.kafka",
    "connect_py.task",
)
OUTSIDE_THE_LAYERS = {"connect_py.converters", "connect_py.testing"}  # they have contracts of their own
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
    return {module.strip().strip("()") for layer in layers for module in layer.split("|")}


def _parts_of_the_runtime() -> set[str]:
    entries = (ROOT / "connect_py").iterdir()
    names = {e.stem for e in entries if (e / "__init__.py").exists() or e.suffix == ".py"}
    return {f"connect_py.{name}" for name in names - {"__init__"}}


def _loaded_after(statements: str) -> set[str]:
    """Top-level names of the modules that a fresh interpreter holds after these statements."""
    program = f"{statements}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert answer.returncode == 0, answer.stderr
    return set(answer.stdout.split())


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("package", WITHOUT_CIRCLES)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    graph = grimp.build_graph(package.partition(".")[0], cache_dir=None)
    inside = [name for name in graph.modules if f"{name}.".startswith(f"{package}.")]
    imports = {
        name: {each for each in graph.find_modules_directly_imported_by(name) if each in inside} for name in inside
    }
    assert len(imports) > 5
    graphlib.TopologicalSorter(imports).prepare()  # names a circle


def test_every_part_of_the_runtime_has_its_place_in_the_layers() -> None:
    assert _parts_of_the_runtime() - _layered() == OUTSIDE_THE_LAYERS


def test_no_part_of_the_runtime_but_the_api_is_open_to_plugins() -> None:
    contract = _contract("Plugins see connect_py.api only")
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


def test_listing_plugins_loads_no_plugin() -> None:
    loaded = _loaded_after(
        "from connect_py.plugins.plugin_registry import PluginRegistry\nPluginRegistry.discover().available()"
    )
    assert loaded.isdisjoint(COLUMNS_AND_SPARK)


def test_the_api_needs_the_standard_library_only() -> None:
    """But for what is about Arrow, and about Java's key stores."""
    modules = sorted(path.stem for path in (ROOT / "connect_py" / "api").glob("*.py"))
    left_out = ("__init__", "arrow", "key_stores")
    imports = "\n".join(f"import connect_py.api.{name}" for name in modules if name not in left_out)
    idle = _loaded_after("pass")
    assert _loaded_after(imports) - idle - set(sys.stdlib_module_names) == {"connect_py"}
