"""Locks: accepted and rejected files. Downloads are replaced; see the integration tests."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from connect_py.embedded import jar_lock
from connect_py.embedded.ivy import Coordinates, IvyError
from connect_py.embedded.jar_lock import SHIPPED_LOCKS, Jar, JarLock, JarLockError, lock_text

CONTENT = {"one": b"first jar", "two": b"second jar"}


def jar(artifact: str) -> Jar:
    return Jar("org.example", artifact, "1.0", hashlib.sha256(CONTENT[artifact]).hexdigest())


LOCK = JarLock("shop", (jar("one"), jar("two")))


class Repository:
    """Stands where Ivy stands."""

    def __init__(self) -> None:
        self.calls = 0
        self.content = dict(CONTENT)

    def fetch(self, title: str, jars: Sequence[Coordinates], folder: Path) -> None:
        self.calls += 1
        folder.mkdir()
        for group, artifact, version, _, _ in jars:
            if artifact in self.content:
                (folder / f"{group}--{artifact}--{version}.jar").write_bytes(self.content[artifact])


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    replacement = Repository()
    monkeypatch.setattr(jar_lock, "fetch", replacement.fetch)
    return replacement


def test_lock_survives_being_written_and_read() -> None:
    assert JarLock.parse("shop", "# a comment\n\n" + lock_text(LOCK.jars)) == LOCK


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("org.example:one:1.0", "line 1"),
        ("org.example:one sha256:" + "0" * 64, "line 1"),
        ("org.example:one:1.0 sha256:abc", "line 1"),
        (lock_text([jar("one")]) * 2, "twice"),
        (lock_text([jar("one"), Jar("org.example", "one", "2.0", "0" * 64)]), "twice"),
    ],
)
def test_line_that_pins_nothing_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(JarLockError, match=complaint):
        JarLock.parse("shop", text)


def test_two_variants_of_one_artifact_are_two_files() -> None:
    pair = (jar("one"), Jar("org.example", "one", "1.0", "0" * 64, "nohive"))
    assert JarLock.parse("shop", lock_text(pair)).jars == pair
    assert [one.file_name for one in pair] == [
        "org.example--one--1.0.jar",
        "org.example--one--1.0--nohive.jar",
    ]


def test_file_that_is_no_jar_says_its_extension() -> None:
    archive = Jar("org.example", "one", "1.0", "0" * 64, "all", "tar.gz")
    assert str(archive) == "org.example:one:1.0:all@tar.gz"
    assert archive.file_name == "org.example--one--1.0--all.tar.gz"
    assert JarLock.parse("shop", lock_text([archive, jar("one")])).jars == (jar("one"), archive)


@pytest.mark.parametrize("name", SHIPPED_LOCKS)
def test_shipped_locks_are_readable_and_name_no_address(name: str) -> None:
    lock = JarLock.shipped(name)
    assert lock.jars
    assert "//" not in lock_text(lock.jars)


def test_shipped_locks_hold_what_they_are_for() -> None:
    assert "org.apache.kafka:kafka_2.13:4.1.1" in map(str, JarLock.shipped("broker").jars)
    spark = {each.artifact for each in JarLock.shipped("spark").jars}
    assert spark == {"iceberg-spark-runtime-4.1_2.13", "sqlite-jdbc"}
    assert "org.apache.kafka:connect-runtime:4.1.1" in map(str, JarLock.shipped("connect").jars)
    assert [str(each) for each in JarLock.shipped("registry").jars] == [
        "io.apicurio:apicurio-registry-app:3.3.3:all@tar.gz"
    ]


def test_second_resolve_of_a_lock_fetches_nothing(repository: Repository, tmp_path: Path) -> None:
    first = LOCK.resolve(tmp_path)
    assert [file.read_bytes() for file in first] == list(CONTENT.values())
    assert LOCK.resolve(tmp_path) == first
    assert repository.calls == 1


def test_file_with_another_digest_is_refused_and_not_kept(
    repository: Repository, tmp_path: Path
) -> None:
    repository.content["two"] = b"something else"
    with pytest.raises(JarLockError, match=r"org\.example:two:1\.0 has sha256"):
        LOCK.resolve(tmp_path)
    assert not [path for path in (tmp_path / "jars").iterdir() if path.is_dir()]


def test_missing_jar_is_named_in_the_lock_error(repository: Repository, tmp_path: Path) -> None:
    del repository.content["one"]
    with pytest.raises(JarLockError, match=r"org\.example:one:1\.0 is missing"):
        LOCK.resolve(tmp_path)


def test_damaged_cached_jar_is_replaced_by_a_new_fetch(
    repository: Repository, tmp_path: Path
) -> None:
    first, _ = LOCK.resolve(tmp_path)
    first.write_bytes(b"bit rot")
    (first.parent / "stranger.jar").write_bytes(b"")
    assert LOCK.resolve(tmp_path)[0].read_bytes() == CONTENT["one"]
    assert repository.calls == 2
    assert {file.name for file in first.parent.iterdir()} == {each.file_name for each in LOCK.jars}


def test_folder_of_another_lock_is_left_alone(repository: Repository, tmp_path: Path) -> None:
    older = JarLock("shop", (jar("one"),)).resolve(tmp_path)
    newer = LOCK.resolve(tmp_path)
    assert older[0].parent != newer[0].parent
    assert older[0].exists()


def test_what_a_dead_process_left_is_swept_away(repository: Repository, tmp_path: Path) -> None:
    left = tmp_path / "jars" / ".shop-dead" / "jars"
    left.mkdir(parents=True)
    LOCK.resolve(tmp_path)
    assert not left.parent.exists()


def test_failed_fetch_leaves_no_folder_in_the_cache(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(title: str, jars: Sequence[Coordinates], folder: Path) -> None:
        folder.mkdir()
        raise IvyError("no network")

    monkeypatch.setattr(jar_lock, "fetch", fail)
    with pytest.raises(IvyError):
        LOCK.resolve(tmp_path)
    assert not [path for path in (tmp_path / "jars").iterdir() if path.is_dir()]
    monkeypatch.setattr(jar_lock, "fetch", repository.fetch)
    assert all(file.exists() for file in LOCK.resolve(tmp_path))
    shutil.rmtree(tmp_path / "jars")
