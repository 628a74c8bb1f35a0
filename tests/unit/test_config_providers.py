"""Placeholders and the three config providers."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect_py.api.errors import ConfigError
from connect_py.config.config_provider import (
    ConfigResolver,
    DirectoryConfigProvider,
    EnvVarConfigProvider,
    FileConfigProvider,
    named_providers,
)


@pytest.fixture
def resolver(tmp_path: Path) -> ConfigResolver:
    (tmp_path / "a.properties").write_text("user=me\nnested=${env:HOME}\n")
    (tmp_path / "token").write_text("line one\n")
    return ConfigResolver(
        {
            "file": FileConfigProvider({}),
            "dir": DirectoryConfigProvider({"allowed.paths": str(tmp_path)}),
            "env": EnvVarConfigProvider({"allowlist.pattern": "MY_.*"}, {"MY_A": "1", "OTHER": "2"}),
        }
    )


def test_placeholders_are_replaced_and_what_surrounds_them_is_kept(resolver: ConfigResolver, tmp_path: Path) -> None:
    props = {
        "both": f"x-${{file:{tmp_path}/a.properties:user}}-${{env:MY_A}}-y",
        "dir": f"${{dir:{tmp_path}:token}}",
        "plain": "no placeholder",
        "null": None,
    }
    assert resolver.resolve(props) == {
        "both": "x-me-1-y", "dir": "line one\n", "plain": "no placeholder", "null": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["${vault:a:b}", "${env:OTHER}", "${env:MY_B}", "${file:%s/a.properties:missing}",
     "${dir:/etc:hostname}", "${dir:%s:../x}"],
)  # fmt: skip
def test_what_is_not_found_or_not_allowed_stays_a_placeholder(
    resolver: ConfigResolver, tmp_path: Path, text: str
) -> None:
    text = text.replace("%s", str(tmp_path))
    assert resolver.resolve({"k": text}) == {"k": text}


def test_results_are_not_expanded_again(resolver: ConfigResolver, tmp_path: Path) -> None:
    assert resolver.resolve({"k": f"${{file:{tmp_path}/a.properties:nested}}"}) == {"k": "${env:HOME}"}


def test_unreadable_file_and_a_path_for_env_are_errors(resolver: ConfigResolver) -> None:
    with pytest.raises(ConfigError, match="Could not read properties from file /nowhere"):
        resolver.resolve({"k": "${file:/nowhere:x}"})
    with pytest.raises(ConfigError, match="Path is not supported"):
        resolver.resolve({"k": "${env:path:MY_A}"})


def test_derived_configurations_get_their_placeholders_back(resolver: ConfigResolver) -> None:
    original = {"secret": "${env:MY_A}", "other": "1"}
    derived = {"secret": "1", "other": "1", "copy": "1"}
    assert resolver.put_back(derived, original) == {"secret": "${env:MY_A}", "other": "1", "copy": "1"}


def test_providers_need_a_known_class() -> None:
    with pytest.raises(ConfigError, match="Could not load config provider class"):
        ConfigResolver.of({"config.providers": "v", "config.providers.v.class": "com.example.Vault"})
    with pytest.raises(ConfigError, match=r"config\.providers\.v\.class"):
        ConfigResolver.of({"config.providers": "v"})
    with pytest.raises(ConfigError, match="not absolute"):
        FileConfigProvider({"allowed.paths": "relative"})
    assert named_providers(["config.providers", "config.providers.v.class", "x"]) == {
        "config.providers", "config.providers.v.class",
    }  # fmt: skip
