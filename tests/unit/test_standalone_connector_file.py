"""Files of connectors on the command line of `connect-standalone`: the three forms that Java's
worker reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect_py.api.errors import ConnectError
from connect_py.connector_file import ConnectorFile
from connect_py.herder.herder import InitialState


def read(folder: Path, text: str, name: str = "connector.json") -> ConnectorFile:
    (folder / name).write_text(text)
    return ConnectorFile.read(folder / name)


def test_a_flat_object_is_a_configuration_whose_values_are_texts(tmp_path: Path) -> None:
    found = read(
        tmp_path, '{"name": "c", "tasks.max": 2, "ratio": 1.50, "on": true, "nothing": null}'
    )
    config = {"name": "c", "tasks.max": "2", "ratio": "1.50", "on": "true", "nothing": None}
    assert found == ConnectorFile("c", config)


def test_request_file_carries_initial_state_and_names_its_configuration(tmp_path: Path) -> None:
    found = read(
        tmp_path, '{"name": "c", "initial_state": "stopped", "config": {"topics": "t"}, "other": 1}'
    )
    assert found == ConnectorFile("c", {"topics": "t", "name": "c"}, InitialState.STOPPED)


def test_anything_else_is_read_as_properties_whatever_the_files_name(tmp_path: Path) -> None:
    assert read(tmp_path, "name=c\ntopics = a,b\n").config == {"name": "c", "topics": "a,b"}
    assert read(tmp_path, "name=c\n", "c.properties").name == "c"


@pytest.mark.parametrize(
    "text", ['{"topics": "t"}', "topics=t\n", "[1, 2]", "", '{"name": null, "a": "b"}']
)
def test_a_configuration_without_a_name_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConnectError, match="is missing the mandatory 'name' configuration"):
        read(tmp_path, text)


def test_two_names_in_one_request_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="doesn't match the one specified in 'name'"):
        read(tmp_path, '{"name": "c", "config": {"name": "d"}}')


def test_missing_connector_file_raises_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ConnectorFile.read(tmp_path / "missing.json")
