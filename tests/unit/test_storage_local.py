"""State of a standalone worker: offsets in a file, imported from Java's; the rest in memory."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from connect_py.api.errors import ConnectError
from connect_py.model import TargetState
from connect_py.storage.config_state import Change, ConnectorChanged
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.java_offset_file import read_java_offsets
from connect_py.storage.local_storage import SUFFIX, LocalStorage, OffsetFile
from connect_py.storage.offset_store import OffsetStore

RECORDED = Path(__file__).parent.parent / "fixtures" / "standalone_offsets" / "java.offsets"
LINES = {"filename": "/tmp/a.txt"}


def store(file: Path) -> OffsetStore:
    opened = OffsetStore("offsets", LocalStorage("offsets", file))
    opened.start()
    opened.refresh(1)
    return opened


def kept(file: Path) -> list[dict[str, str | None]]:
    return [
        json.loads(line) for line in file.with_name(file.name + SUFFIX).read_text().splitlines()
    ]


def test_offsets_last_from_one_start_to_the_next(tmp_path: Path) -> None:
    first = store(tmp_path / "offsets")
    first.set("c", [({"p": 1}, {"position": 3}), ({"p": 2}, {"position": 4})]).result(0)
    first.set("c", [({"p": 1}, {"position": 5}), ({"p": 2}, None)]).result(0)
    assert first.get("c", {"p": 1}) == {"position": 5}
    first.stop()
    again = store(tmp_path / "offsets")
    assert again.offsets("c") == [({"p": 1}, {"position": 5})]
    again.stop()
    assert not (tmp_path / "offsets").exists()


def test_offsets_of_javas_worker_are_imported_without_changing_its_file(tmp_path: Path) -> None:
    file = tmp_path / "connect.offsets"
    shutil.copy(RECORDED, file)
    opened = store(file)
    assert opened.get("lines", LINES) == {"position": 12}
    assert opened.get("lines", {"filename": "/tmp/é.txt"}) == opened.get(
        "other", {"filename": "/tmp/b.txt"}
    )
    opened.set("lines", [(LINES, {"position": 20})]).result(0)
    opened.stop()
    assert file.read_bytes() == RECORDED.read_bytes()
    again = store(file)
    assert again.get("lines", LINES) == {"position": 20}
    again.stop()


def test_java_file_written_later_is_named_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "connect.offsets"
    store(file).stop()
    shutil.copy(RECORDED, file)
    os.utime(file.with_name(file.name + SUFFIX), (1, 1))
    with caplog.at_level(logging.WARNING):
        again = store(file)
    assert again.get("lines", LINES) is None
    assert "was modified by a Java worker more recently than" in caplog.text
    again.stop()


@pytest.mark.parametrize("length", [3, 40, 90, 150])
def test_broken_java_offset_file_stops_the_worker_at_start(tmp_path: Path, length: int) -> None:
    file = tmp_path / "connect.offsets"
    file.write_bytes(RECORDED.read_bytes()[:length])
    with pytest.raises(ConnectError, match="is not a valid offset file of a standalone worker"):
        store(file)


def test_an_empty_java_file_and_null_entries_are_no_offsets(tmp_path: Path) -> None:
    (tmp_path / "touched").touch()
    assert read_java_offsets(tmp_path / "touched") == {}
    assert len(read_java_offsets(RECORDED)) == 3


def test_a_line_that_a_crash_cut_off_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = store(tmp_path / "offsets")
    first.set("c", [({"p": 1}, {"position": 3})]).result(0)
    first.stop()
    with (tmp_path / f"offsets{SUFFIX}").open("a") as file:
        file.write('{"key": "[')
    again = store(tmp_path / "offsets")
    assert again.offsets("c") == [({"p": 1}, {"position": 3})]
    assert len(kept(tmp_path / "offsets")) == 1
    again.stop()


def test_the_file_does_not_grow_with_every_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # each line waits for the disk
    monkeypatch.setattr("connect_py.storage.local_storage.SPARE_LINES", 20)
    file = OffsetFile(tmp_path / "offsets")
    file.open()
    for position in range(50):
        file.append([(b"k", str(position).encode())])
    file.close()
    assert len(kept(tmp_path / "offsets")) <= 21
    assert file.open() == {b"k": b"49"}
    file.close()


def test_a_folder_that_cannot_be_written_is_said_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="failed to open offset file"):
        store(tmp_path / "no" / "folder" / "offsets")


def test_configurations_act_like_those_of_a_topic() -> None:
    changes: list[Change] = []
    local = LocalStorage("offsets", Path("unused"))
    configs = ConfigStore("configs", local, local, changes.extend)
    configs.start()
    configs.put_connector_config("c", {"name": "c"}, TargetState.PAUSED)
    configs.put_task_configs("c", [{"task.class": "T"}])
    state = configs.snapshot()
    assert state.target_state("c") is TargetState.PAUSED
    assert len(state.tasks("c")) == 1
    assert ConnectorChanged("c") in changes
    configs.remove_connector_config("c")
    assert configs.snapshot().connectors() == []


def test_offset_file_is_written_again_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connect_py.storage.local_storage.SPARE_LINES", 4)
    file = OffsetFile(tmp_path / "offsets")
    file.open()
    in_the_way = file.path.with_name(f"{file.path.name}.new")
    in_the_way.mkdir()  # as with a full disk: no new file can be made
    for number in range(4):
        file.append([(b"k", str(number).encode())])
    with pytest.raises(ConnectError, match="failed to write offsets"):
        file.append([(b"k", b"one line too many")])
    in_the_way.rmdir()
    file.append([(b"k", b"later")])
    file.close()
    again = OffsetFile(tmp_path / "offsets")
    assert again.open() == {b"k": b"later"}
    again.close()
