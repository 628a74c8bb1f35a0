"""The interface for plugin authors does not change accidentally."""

from __future__ import annotations

import importlib.util
from pathlib import Path

HERE = Path(__file__).parent


def test_the_public_names_of_the_api_are_the_pinned_ones() -> None:
    """A deliberate change: run `python tests/architecture/public_names.py >
    tests/architecture/public_names.txt`."""
    spec = importlib.util.spec_from_file_location("public_names", HERE / "public_names.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.public_names() == module.PINNED.read_text().splitlines()
