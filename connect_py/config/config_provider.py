"""Placeholders `${provider:path:key}` in configurations, and three providers that resolve them.

Results are not expanded again. A placeholder of an unknown provider, or of a key that is not found,
stays as it is.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from connect_py.api.config import ConfigValueError, Type, at_least, parse, with_prefix
from connect_py.api.config_provider import ConfigData, ConfigProvider
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.config.bounded_provider import ANSWER_SECONDS, BoundedProvider
from connect_py.config.properties_file import read_properties
from connect_py.secret_mask import hide

log = logging.getLogger(__name__)

PLACEHOLDER = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
Text = TypeVar("Text", str, str | None)


TTL_PARAM = "connect_py.ttl.ms"  # ours: how often a file is looked at again


def _ttl(params: Mapping[str, str]) -> int | None:
    text = params.get(TTL_PARAM)
    if text is None:
        return None
    ttl: int = parse(TTL_PARAM, text, Type.LONG)
    at_least(1)(TTL_PARAM, ttl)
    return ttl


class AllowedPaths:
    """Folders and files that a provider may read; None allows all."""

    def __init__(self, setting: str | None) -> None:
        self._roots: list[Path] | None = None
        if setting and setting.strip():
            self._roots = []
            for item in setting.split(","):
                root = Path(item.strip())
                if not root.is_absolute():
                    raise ConfigError("", f"Path {root} is not absolute")
                if not root.exists():
                    raise ConfigError("", f"Path {root} does not exist")
                self._roots.append(Path(os.path.normpath(root)))

    def check(self, path: str) -> Path | None:
        """Return the normalised path, or None, with a warning, when it is outside."""
        normal = Path(os.path.normpath(path))
        if self._roots is None or any(normal.is_relative_to(root) for root in self._roots):
            return normal
        log.warning(
            "the path %s is not allowed to be accessed; change allowed.paths to permit it", normal
        )
        return None


class FileConfigProvider(ConfigProvider):
    """Reads properties files: path is the file, key the property."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self._allowed = AllowedPaths(params.get("allowed.paths"))
        self._ttl = _ttl(params)

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        file = self._allowed.check(path) if path else None
        if file is None:
            return ConfigData()
        try:
            found = read_properties(file)
        except (OSError, ValueError) as error:
            raise ConfigError("", f"Could not read properties from file {path}") from error
        return ConfigData({key: found[key] for key in keys if key in found}, self._ttl)


class DirectoryConfigProvider(ConfigProvider):
    """Reads whole files: path is the folder, key the file's name."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self._allowed = AllowedPaths(params.get("allowed.paths"))
        self._ttl = _ttl(params)

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        folder = self._allowed.check(path) if path else None
        if folder is None:
            return ConfigData()
        found = {}
        for key in keys:
            file = folder / key
            if not key or file.parent != folder or not file.is_file():
                continue
            try:
                found[key] = file.read_text("utf-8")
            except (OSError, ValueError) as error:
                raise ConfigError("", f"Could not read file {file} for property {key}") from error
        return ConfigData(found, self._ttl)


class EnvVarConfigProvider(ConfigProvider):
    """Reads environment variables: no path, key is the variable."""

    def __init__(
        self, params: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> None:
        pattern = params.get("allowlist.pattern") or ".*"
        try:
            self._allowed = re.compile(pattern)
        except re.error as error:
            raise ConfigError(
                "allowlist.pattern", f"{pattern} is not a valid regular expression"
            ) from error
        self._environment = os.environ if environment is None else environment

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        if path:
            raise ConfigError(
                "", "Path is not supported for EnvVarConfigProvider, invalid value '" + path + "'"
            )
        allowed = [key for key in keys if key in self._environment and self._allowed.fullmatch(key)]
        return ConfigData({key: self._environment[key] for key in allowed})


PROVIDERS = {
    "FileConfigProvider": FileConfigProvider,
    "DirectoryConfigProvider": DirectoryConfigProvider,
    "EnvVarConfigProvider": EnvVarConfigProvider,
}
SHORT_NAMES = {
    "file": FileConfigProvider,
    "directory": DirectoryConfigProvider,
    "env": EnvVarConfigProvider,
}


def _provider(name: str, params: Mapping[str, str], class_name: str | None) -> ConfigProvider:
    if class_name is None:
        raise ConfigError(
            "",
            f'Missing required configuration "config.providers.{name}.class" which has no default '
            f"value.",
        )
    known = PROVIDERS.get(class_name.rpartition(".")[2]) or SHORT_NAMES.get(class_name)
    if known is not None:
        return known(params)
    provider = _own_provider(f"config.providers.{name}.class", class_name)
    with _translated(name):
        provider.configure(params)
    return provider


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    """Turn any error of a foreign provider into a ConfigError: callers expect no other of a
    configuration."""
    try:
        yield
    except ConnectError:
        raise
    except Exception as error:
        raise ConfigError(
            "", f"config provider {name} failed with {type(error).__name__}"
        ) from error


def _own_provider(key: str, class_name: str) -> ConfigProvider:
    """A provider that the worker's owner wrote: `module:Class`."""
    module, _, attribute = class_name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigValueError(
            key, class_name, "Could not load config provider class or one of its dependencies"
        ) from error
    if not (isinstance(found, type) and issubclass(found, ConfigProvider)):
        raise ConfigValueError(key, class_name, "It is no ConfigProvider")
    return found()


@dataclass(frozen=True, slots=True)
class Resolved(Generic[Text]):
    """A configuration with its placeholders replaced, and how long that holds."""

    props: dict[str, Text]
    ttl_ms: int | None  # the shortest of all values; None: for ever


class ConfigResolver:
    """Replaces placeholders by what the named providers answer. Each is asked once for each of its
    paths.

    One that hangs is an error after a while, and at once from then on: the threads that start
    connectors go on.
    """

    def __init__(
        self, providers: Mapping[str, ConfigProvider], answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._providers = {
            name: BoundedProvider(name, provider, answer_seconds)
            for name, provider in providers.items()
        }

    @staticmethod
    def of(props: Mapping[str, str]) -> ConfigResolver:
        """The providers that worker properties declare.

        Raises:
            ConfigError: A provider's class is missing or unknown, or its parameters are wrong.
        """
        providers = {}
        for name in (item.strip() for item in props.get("config.providers", "").split(",")):
            if name:
                own = with_prefix(props, f"config.providers.{name}.")
                providers[name] = _provider(name, with_prefix(own, "param."), own.get("class"))
        return ConfigResolver(providers)

    def resolve(self, props: Mapping[str, Text]) -> dict[str, Text]:
        """Return the same keys with placeholders replaced.

        Raises:
            ConfigError: A provider cannot read what a placeholder names.
        """
        return self.transform(props).props

    def transform(self, props: Mapping[str, Text]) -> Resolved[Text]:
        """The same, with the time for which the values hold."""
        wanted: dict[tuple[str, str], set[str]] = {}
        for key, value in props.items():
            for match in PLACEHOLDER.finditer(value or ""):
                if match[1] in self._providers:
                    wanted.setdefault((match[1], _path(match)), set()).add(_key(match))
                else:
                    log.warning(
                        "configuration %s names the config provider %s, which the worker does not "
                        "have",
                        key,
                        match[1],
                    )
        found: dict[tuple[str, str], ConfigData] = {}
        for (name, path), keys in wanted.items():
            with _translated(name):
                found[name, path] = data = self._providers[name].get(path, keys)
                if not all(isinstance(value, str) for value in data.data.values()):
                    raise TypeError("a value is no text")
                hide(data.data.values())
        ttls = [data.ttl_ms for data in found.values() if data.ttl_ms is not None]

        def replacement(match: re.Match[str]) -> str:
            data = found.get((match[1], _path(match)))
            return match[0] if data is None else data.data.get(_key(match), match[0])

        resolved = {
            k: PLACEHOLDER.sub(replacement, v) if v is not None and "${" in v else v
            for k, v in props.items()
        }
        return Resolved(resolved, min(ttls, default=None))

    def placeholder_keys(self, props: Mapping[str, str | None]) -> set[str]:
        """The keys whose values hold a placeholder of a known provider."""
        return {
            key
            for key, value in props.items()
            if value and any(match[1] in self._providers for match in PLACEHOLDER.finditer(value))
        }


def _path(match: re.Match[str]) -> str:
    return (match[3] or "").strip()


def _key(match: re.Match[str]) -> str:
    return match[4].strip()


def named_providers(props: Iterable[str]) -> set[str]:
    """The keys that declare providers, which connector configurations may not carry."""
    return {
        key for key in props if key == "config.providers" or key.startswith("config.providers.")
    }
