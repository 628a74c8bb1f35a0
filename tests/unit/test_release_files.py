"""Files and checks of `make release`, without building anything; `test_release` builds."""

from __future__ import annotations

import re
import subprocess
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from earlier_versions import LAST_RELEASE

ROOT = Path(__file__).parents[2]
PROJECT = '[project]\nname = "connect-py"\nversion = "{}"\n'
CHANGES = (
    "# Changes\n\nText.\n\n## 0.3.0 (unreleased)\n\n- One.\n- Two.\n\n## 0.2.0 "
    "(2026-11-26)\n\n- More.\n"
)


@pytest.fixture
def repository(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text(PROJECT.format("0.3.0"))
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    (tmp_path / "Makefile").write_text("install:\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def test_the_repository_is_ready_for_a_release(release: ModuleType) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", release.version())


def test_the_newest_section_of_the_changelog_counts(release: ModuleType, repository: Path) -> None:
    assert release.newest_section(CHANGES) == ("0.3.0", 4)
    assert release.version() == "0.3.0"


def test_another_version_than_the_changelogs_is_refused(
    release: ModuleType, repository: Path
) -> None:
    (repository / "pyproject.toml").write_text(PROJECT.format("0.4.0"))
    with pytest.raises(
        release.ReleaseError, match=r"has version 0\.4\.0, the changelog begins with 0\.3\.0"
    ):
        release.version()


def test_a_changelog_too_long_for_operators_is_refused(
    release: ModuleType, repository: Path
) -> None:
    (repository / "CHANGELOG.md").write_text(CHANGES.replace("- One.", "word " * 400))
    with pytest.raises(release.ReleaseError, match="402 words, expected at most 400"):
        release.version()


def test_a_release_without_chart_and_image_says_so(release: ModuleType, repository: Path) -> None:
    reasons = [
        *release.make_archives(repository, "0.3.0", repository / "site"),
        *release.make_image(repository, "0.3.0"),
    ]
    assert [reason.partition(":")[0] for reason in reasons] == ["documentation", "chart", "image"]


def test_a_chart_is_packed_with_the_version_of_the_release(
    release: ModuleType, repository: Path
) -> None:
    chart = repository / "deploy" / "helm" / "connect-py"
    (chart / "templates").mkdir(parents=True)
    (chart / "templates" / "worker.yaml").write_text("kind: Deployment\n")
    (chart / "Chart.yaml").write_text('name: connect-py\nversion: 0.1.0\nappVersion: "0.1.0"\n')
    (repository / "site").mkdir()
    (repository / "site" / "index.html").write_text("<p>")
    assert list(release.make_archives(repository, "0.3.0", repository / "site")) == []
    with tarfile.open(repository / "connect-py-0.3.0.tgz") as archive:
        assert "connect-py/templates/worker.yaml" in archive.getnames()
        assert {entry.uname for entry in archive.getmembers()} == {""}
        described = archive.extractfile("connect-py/Chart.yaml")
        assert described is not None
        assert described.read() == b'name: connect-py\nversion: "0.3.0"\nappVersion: "0.3.0"\n'


def test_an_image_that_fails_is_named_with_its_reason(
    release: ModuleType, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "docker").mkdir()
    (repository / "docker" / "Dockerfile").write_text("FROM nowhere\n")
    (repository / "buildah").write_text("#!/bin/sh\necho 'no registry answers' >&2\nexit 125\n")
    (repository / "buildah").chmod(0o755)
    monkeypatch.setenv("PATH", str(repository))
    assert list(release.make_image(repository, "0.3.0")) == ["image: no registry answers"]
    (repository / "buildah").unlink()
    assert list(release.make_image(repository, "0.3.0")) == [
        "image: neither Docker nor Buildah is available"
    ]


def test_buildah_makes_the_image_where_no_engine_answers(
    release: ModuleType, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "docker").mkdir()
    (repository / "docker" / "Dockerfile").write_text("FROM nowhere\n")
    programs = repository / "programs"
    programs.mkdir()
    (programs / "docker").write_text('#!/bin/sh\necho "no engine answers" >&2\nexit 1\n')
    (programs / "buildah").write_text(f'#!/bin/sh\necho "$@" >> {repository}/commands\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    assert list(release.make_image(repository, "0.3.0")) == []
    built, pushed = (repository / "commands").read_text().splitlines()
    assert built.startswith("bud --format docker ")  # the other format has no health check
    assert pushed.endswith(
        f"docker-archive:{repository}/connect-py-0.3.0-image.tar:connect-py:0.3.0"
    )


def test_checksums_are_those_of_the_files(release: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert release.write_checksums(tmp_path) == [("a.whl", 3, digest)]
    assert (tmp_path / "SHA256SUMS").read_text() == f"{digest}  a.whl\n"


def test_rolling_upgrade_begins_at_the_release_before_this_one() -> None:
    shown = subprocess.run(
        ["git", "-C", str(ROOT), "show", f"{LAST_RELEASE}:pyproject.toml"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    if shown.returncode:
        pytest.skip(f"the repository's history is not here: {shown.stderr.strip()}")
    before = re.findall(r"^## ([0-9][\w.]*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert tomllib.loads(shown.stdout)["project"]["version"] == before
