"""Placeholders and the three config providers."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import ClassVar

import pytest

from connect_py.api.config_provider import ConfigData, ConfigProvider
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
            "env": EnvVarConfigProvider(
                {"allowlist.pattern": "MY_.*"}, {"MY_A": "1", "OTHER": "2"}
            ),
        }
    )


def test_placeholders_are_replaced_and_what_surrounds_them_is_kept(
    resolver: ConfigResolver, tmp_path: Path
) -> None:
    props = {
        "both": f"x-${{file:{tmp_path}/a.properties:user}}-${{env:MY_A}}-y",
        "dir": f"${{dir:{tmp_path}:token}}",
        "plain": "no placeholder",
        "null": None,
    }
    assert resolver.resolve(props) == {
        "both": "x-me-1-y",
        "dir": "line one\n",
        "plain": "no placeholder",
        "null": None,
    }


@pytest.mark.parametrize(
    "text",
    [
        "${vault:a:b}",
        "${env:OTHER}",
        "${env:MY_B}",
        "${file:%s/a.properties:missing}",
        "${dir:/etc:hostname}",
        "${dir:%s:../x}",
    ],
)
def test_what_is_not_found_or_not_allowed_stays_a_placeholder(
    resolver: ConfigResolver, tmp_path: Path, text: str
) -> None:
    text = text.replace("%s", str(tmp_path))
    assert resolver.resolve({"k": text}) == {"k": text}


def test_placeholders_in_resolved_values_are_not_expanded_again(
    resolver: ConfigResolver, tmp_path: Path
) -> None:
    assert resolver.resolve({"k": f"${{file:{tmp_path}/a.properties:nested}}"}) == {
        "k": "${env:HOME}"
    }


def test_unreadable_file_and_a_path_for_env_are_errors(resolver: ConfigResolver) -> None:
    with pytest.raises(ConfigError, match="Could not read properties from file /nowhere"):
        resolver.resolve({"k": "${file:/nowhere:x}"})
    with pytest.raises(ConfigError, match="Path is not supported"):
        resolver.resolve({"k": "${env:path:MY_A}"})


def test_config_providers_are_refused_without_a_known_class() -> None:
    with pytest.raises(ConfigError, match="Could not load config provider class"):
        ConfigResolver.of(
            {"config.providers": "v", "config.providers.v.class": "com.example.Vault"}
        )
    with pytest.raises(ConfigError, match=r"config\.providers\.v\.class"):
        ConfigResolver.of({"config.providers": "v"})
    with pytest.raises(ConfigError, match="not absolute"):
        FileConfigProvider({"allowed.paths": "relative"})
    assert named_providers(["config.providers", "config.providers.v.class", "x"]) == {
        "config.providers",
        "config.providers.v.class",
    }


class CountingProvider(ConfigProvider):
    """A user-defined provider that records its requests."""

    made: ClassVar[list[CountingProvider]] = []

    def configure(self, params: Mapping[str, str]) -> None:
        self.params = dict(params)
        self.asked: list[tuple[str, set[str]]] = []
        self.made.append(self)

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        self.asked.append((path, set(keys)))
        return ConfigData({key: f"{path}-{key}" for key in keys if key != "missing"}, 5_000)


def test_custom_provider_loads_by_class_and_runs_once_per_path() -> None:
    resolver = ConfigResolver.of(
        {
            "config.providers": "mine",
            "config.providers.mine.class": f"{__name__}:CountingProvider",
            "config.providers.mine.param.address": "somewhere",
        }
    )
    provider = CountingProvider.made.pop()
    assert provider.params == {"address": "somewhere"}
    resolved = resolver.transform(
        {"a": "${mine:p:x}${mine:p:y}", "b": "${mine:p:missing} ${mine:q:x}", "c": "plain"}
    )
    assert resolved.props == {"a": "p-xp-y", "b": "${mine:p:missing} q-x", "c": "plain"}
    assert resolved.ttl_ms == 5_000
    assert sorted(provider.asked) == [("p", {"x", "y", "missing"}), ("q", {"x"})]


def test_file_provider_values_have_a_ttl_only_when_configured(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("user=me\n")
    props = {"k": f"${{f:{tmp_path}/a.properties:user}}"}
    assert ConfigResolver({"f": FileConfigProvider({})}).transform(props).ttl_ms is None
    assert (
        ConfigResolver({"f": FileConfigProvider({"connect_py.ttl.ms": "250"})})
        .transform(props)
        .ttl_ms
        == 250
    )
    with pytest.raises(ConfigError, match="at least 1"):
        DirectoryConfigProvider({"connect_py.ttl.ms": "0"})


def test_what_is_no_provider_is_refused() -> None:
    for name in (
        f"{__name__}:test_what_is_no_provider_is_refused",
        f"{__name__}:Missing",
        "no_such_module:X",
    ):
        with pytest.raises(ConfigError, match=r"config\.providers\.v\.class"):
            ConfigResolver.of({"config.providers": "v", "config.providers.v.class": name})


class AwayProvider(ConfigProvider):
    """Its server is not available, which it reports with its own error."""

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        raise ConnectionResetError("vault hung up")


class NumberProvider(ConfigProvider):
    """Returns values that are not strings."""

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        return ConfigData(dict.fromkeys(keys, 5432))  # type: ignore[arg-type] - the point of it


class UnconfiguredProvider(AwayProvider):
    def configure(self, params: Mapping[str, str]) -> None:
        raise KeyError("address")


def test_provider_exception_becomes_a_configuration_error() -> None:
    own = {"config.providers": "vault", "config.providers.vault.class": f"{__name__}:AwayProvider"}
    resolver = ConfigResolver.of(own)
    with pytest.raises(
        ConfigError, match="config provider vault failed with ConnectionResetError"
    ) as raised:
        resolver.resolve({"password": "${vault:db:password}"})
    assert str(raised.value.__cause__) == "vault hung up"
    with pytest.raises(ConfigError, match="config provider vault failed with KeyError"):
        ConfigResolver.of(
            own | {"config.providers.vault.class": f"{__name__}:UnconfiguredProvider"}
        )
    numbers = ConfigResolver.of(
        own | {"config.providers.vault.class": f"{__name__}:NumberProvider"}
    )
    with pytest.raises(ConfigError, match="config provider vault failed with TypeError"):
        numbers.resolve({"port": "${vault:db:port}"})


class HangingProvider(ConfigProvider):
    """Its server accepts the request for one path and never responds."""

    def __init__(self) -> None:
        self.asked = 0
        self.go_on = threading.Event()

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        if path == "slow":
            self.asked += 1
            self.go_on.wait(30.0)
        return ConfigData(dict.fromkeys(keys, "value"))


def test_hanging_provider_is_an_error_at_once_until_it_answers() -> None:
    vault = HangingProvider()
    resolver = ConfigResolver({"vault": vault}, answer_seconds=0.05)
    with pytest.raises(ConfigError, match=r"config provider vault did not respond within 0\.05 s"):
        resolver.resolve({"password": "${vault:slow:password}"})
    with pytest.raises(
        ConfigError, match="config provider vault has not completed an earlier request"
    ):
        resolver.resolve({"password": "${vault:slow:password}"})
    assert vault.asked == 1
    patient = ConfigResolver({"vault": vault})
    assert patient.resolve({"password": "${vault:quick:password}"}) == {"password": "value"}
    vault.go_on.set()
    deadline = time.monotonic() + 30.0
    while True:  # until the previous request has ended, too
        try:
            assert resolver.resolve({"password": "${vault:slow:password}"}) == {"password": "value"}
            break
        except ConfigError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
