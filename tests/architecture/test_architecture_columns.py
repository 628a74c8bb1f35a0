"""Every converter with a batch form has a property test, of enough examples, that holds it to its
row form."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fixtures.both_forms import EXAMPLES

from connect_py.api.converter import Converter
from connect_py.api.plugin import PluginKind
from connect_py.plugins.plugin_registry import PluginRegistry

PROPERTIES = Path(__file__).parents[1] / "property"
REGISTRY = PluginRegistry.discover()
LEAST = 2000


def _with_batch_form() -> set[type[Converter]]:
    classes = [
        REGISTRY.load(plugin)
        for plugin in REGISTRY.available()
        if plugin.kind is PluginKind.CONVERTER
    ]
    return {each for each in classes if each.to_batch is not Converter.to_batch}


def _property_tests() -> Iterator[Any]:
    for path in sorted(PROPERTIES.glob("test_converters_*.py")):
        spec = importlib.util.spec_from_file_location(f"looked_at_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield from (
            member for name, member in inspect.getmembers(module) if name.startswith("test_")
        )


def test_both_forms_of_every_converter_are_held_together() -> None:
    assert EXAMPLES >= LEAST
    held = {each for test in _property_tests() for each in getattr(test, "both_forms_of", ())}
    assert {each.__name__ for each in _with_batch_form() - held} == set()
