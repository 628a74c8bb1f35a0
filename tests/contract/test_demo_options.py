"""`connect-py demo` rejects invalid options and missing requirements before it starts a part."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.command_line import connect_py_program
from typer.testing import CliRunner

from connect_py.embedded import postgres
from connect_py.embedded.postgres import PostgresError, find_postgres


def test_missing_postgres_is_reported_with_installation_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCATIONS", (f"{tmp_path}/none/*/bin",))
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(
        connect_py_program(), ["demo", "--dir", str(tmp_path / "data")], env={"COLUMNS": "80"}
    )
    assert result.exit_code == 1
    assert "demo failed: PostgreSQL's server is not installed" in result.output
    assert "apt-get install postgresql" in result.output


def test_tour_refuses_an_end_time() -> None:
    refused = CliRunner().invoke(connect_py_program(), ["demo", "--tour", "--seconds", "5"])
    assert refused.exit_code == 2
    assert "cannot be combined with --tour" in refused.output


def test_directory_with_other_files_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    refused = CliRunner().invoke(
        connect_py_program(), ["demo", "--dir", str(tmp_path)], env={"COLUMNS": "80"}
    )
    assert refused.exit_code == 1
    assert "contains other files" in " ".join(refused.output.split())
    assert (tmp_path / "precious.txt").read_text() == "keep me"


def test_newest_postgres_of_the_packages_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCATIONS", (f"{tmp_path}/postgresql/*/bin",))
    for version in ("9.6", "15", "17"):
        folder = tmp_path / "postgresql" / version / "bin"
        folder.mkdir(parents=True)
        (folder / "initdb").touch(mode=0o755)
    nowhere = {"PATH": str(tmp_path)}
    assert find_postgres(nowhere) == tmp_path / "postgresql" / "17" / "bin"
    assert find_postgres({"PATH": str(tmp_path / "postgresql" / "15" / "bin")}).parent.name == "15"
    monkeypatch.setattr(postgres, "LOCATIONS", ())
    with pytest.raises(PostgresError, match="brew install"):
        find_postgres(nowhere)
