"""`connect-py demo` refuses what it cannot run, before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from connect_py import cli
from connect_py.embedded import postgres
from connect_py.embedded.postgres import PostgresError, find_postgres


def test_missing_postgres_ends_the_demo_with_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCATIONS", (f"{tmp_path}/none/*/bin",))
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = CliRunner().invoke(
        cli.app, ["demo", "--dir", str(tmp_path / "data")], env={"COLUMNS": "80"}
    )
    assert shown.exit_code == 1
    assert "demo failed: PostgreSQL's server is not installed" in shown.output
    assert "apt-get install postgresql" in shown.output


def test_the_tour_takes_no_seconds_because_it_ends_itself() -> None:
    refused = CliRunner().invoke(cli.app, ["demo", "--tour", "--seconds", "5"])
    assert refused.exit_code == 2
    assert "the tour ends by itself" in refused.output


def test_a_folder_with_other_files_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    refused = CliRunner().invoke(cli.app, ["demo", "--dir", str(tmp_path)], env={"COLUMNS": "80"})
    assert refused.exit_code == 1
    assert "holds something else" in " ".join(refused.output.split())
    assert (tmp_path / "precious.txt").read_text() == "keep me"


def test_newest_postgres_is_found_where_packages_put_it(
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
