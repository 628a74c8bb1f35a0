"""Connectors as people post them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connect_py.api.errors import ConfigError
from connectors.iceberg.commands.connector_json import read_connector


@pytest.mark.parametrize("posted", [
    {"name": "sink", "config": {"topics": "a"}},
    {"name": "sink", "topics": "a"},
    {"config": {"name": "sink", "topics": "a"}},
])  # fmt: skip
def test_connector_has_its_name_in_each_shape(tmp_path: Path, posted: dict[str, Any]) -> None:
    file = tmp_path / "sink.json"
    file.write_text(json.dumps(posted))
    assert read_connector(file) == {"name": "sink", "topics": "a"}


@pytest.mark.parametrize("posted", [{"config": {"topics": "a"}}, {"topics": "a"}, {"name": "", "topics": "a"}])
def test_connector_without_a_name_is_refused(tmp_path: Path, posted: dict[str, Any]) -> None:
    file = tmp_path / "sink.json"
    file.write_text(json.dumps(posted))
    with pytest.raises(ConfigError, match=r"name: is missing in .*sink\.json"):
        read_connector(file)
