"""Placeholders `${provider:path:key}` in configurations, and the built-in config providers.

Resolved values are not expanded again. Placeholders with an unknown provider or key remain
unchanged.
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


TTL_PARAM = "connect_py.ttl.ms"  # connect-py extension: interval for reloading a file


def _ttl(params: Mapping[str, str]) -> int | None:
    text = params.get(TTL_PARAM)
    if text is None:
        return None
    ttl: int = parse(TTL_PARAM, text, Type.LONG)
    at_least(1)(TTL_PARAM, ttl)
    return ttl


class AllowedPaths:
    """Folders and files that a provider may read. If `setting` is empty, all paths are allowed."""

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
        """Return the normalized path. If it is not allowed, log a warning and return None."""
        normal = Path(os.path.normpath(path))
        if self._roots is None or any(normal.is_relative_to(root) for root in self._roots):
            return normal
        log.warning(
            "the path %s is not allowed to be accessed; change allowed.paths to permit it", normal
        )
        return None


class FileConfigProvider(ConfigProvider):
    """Reads values from properties files. The path is the file, and the key is the property."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self._allowed = AllowedPaths(params.get("allowed.paths"))
        self._ttl = _ttl(params)

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        file = self._allowed.check(path) if path else None
        if file is None:
            return ConfigData()
        try:
            properties = read_properties(file)
        except (OSError, ValueError) as error:
            raise ConfigError("", f"Could not read properties from file {path}") from error
        return ConfigData({key: properties[key] for key in keys if key in properties}, self._ttl)


class DirectoryConfigProvider(ConfigProvider):
    """Reads each value from a file. The path is the folder, and the key is the file name."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self._allowed = AllowedPaths(params.get("allowed.paths"))
        self._ttl = _ttl(params)

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        folder = self._allowed.check(path) if path else None
        if folder is None:
            return ConfigData()
        values = {}
        for key in keys:
            file = folder / key
            if not key or file.parent != folder or not file.is_file():
                continue
            try:
                values[key] = file.read_text("utf-8")
            except (OSError, ValueError) as error:
                raise ConfigError("", f"Could not read file {file} for property {key}") from error
        return ConfigData(values, self._ttl)


class EnvVarConfigProvider(ConfigProvider):
    """Reads environment variables. The path is empty, and the key is the variable name."""

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
    builtin = PROVIDERS.get(class_name.rpartition(".")[2]) or SHORT_NAMES.get(class_name)
    if builtin is not None:
        return builtin(params)
    provider = _custom_provider(f"config.providers.{name}.class", class_name)
    with _translated(name):
        provider.configure(params)
    return provider


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    """Convert unexpected errors from a custom provider to ConfigError.

    Callers handle only Connect errors.
    """
    try:
        yield
    except ConnectError:
        raise
    except Exception as error:
        raise ConfigError(
            "", f"config provider {name} failed with {type(error).__name__}"
        ) from error


def _custom_provider(key: str, class_name: str) -> ConfigProvider:
    """Create a custom provider from its class name, `module:Class`."""
    module, _, attribute = class_name.partition(":")
    try:
        provider_class = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigValueError(
            key, class_name, "Could not load config provider class or one of its dependencies"
        ) from error
    if not (isinstance(provider_class, type) and issubclass(provider_class, ConfigProvider)):
        raise ConfigValueError(key, class_name, "not a subclass of ConfigProvider")
    return provider_class()


@dataclass(frozen=True, slots=True)
class Resolved(Generic[Text]):
    """A resolved configuration and its time to live."""

    props: dict[str, Text]
    ttl_ms: int | None  # shortest time to live of any value; None if unlimited


class ConfigResolver:
    """Replaces placeholders with values from config providers.

    Sends one request per provider and path. If a provider hangs, a request fails after a timeout,
    and all later requests fail immediately. A provider therefore cannot block the threads that
    restart connectors.
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
        """Create a resolver with the providers that the worker properties declare.

        Raises:
            ConfigError: A provider's class is missing or unknown, or its parameters are invalid.
        """
        providers = {}
        for name in (item.strip() for item in props.get("config.providers", "").split(",")):
            if name:
                provider_props = with_prefix(props, f"config.providers.{name}.")
                providers[name] = _provider(
                    name, with_prefix(provider_props, "param."), provider_props.get("class")
                )
        return ConfigResolver(providers)

    def resolve(self, props: Mapping[str, Text]) -> dict[str, Text]:
        """Return the configuration with placeholders replaced.

        Raises:
            ConfigError: A provider cannot read the value for a placeholder.
        """
        return self.transform(props).props

    def transform(self, props: Mapping[str, Text]) -> Resolved[Text]:
        """Return the configuration with placeholders replaced, and its time to live."""
        keys_by_path: dict[tuple[str, str], set[str]] = {}
        for key, value in props.items():
            for match in PLACEHOLDER.finditer(value or ""):
                if match[1] in self._providers:
                    keys_by_path.setdefault((match[1], _path(match)), set()).add(_key(match))
                else:
                    log.warning(
                        "configuration %s refers to the config provider %s, which is not "
                        "configured on this worker",
                        key,
                        match[1],
                    )
        data_by_path: dict[tuple[str, str], ConfigData] = {}
        for (name, path), keys in keys_by_path.items():
            with _translated(name):
                data_by_path[name, path] = data = self._providers[name].get(path, keys)
                if not all(isinstance(value, str) for value in data.data.values()):
                    raise TypeError("a value is not a string")
                hide(data.data.values())
        ttls = [data.ttl_ms for data in data_by_path.values() if data.ttl_ms is not None]

        def replacement(match: re.Match[str]) -> str:
            data = data_by_path.get((match[1], _path(match)))
            return match[0] if data is None else data.data.get(_key(match), match[0])

        resolved = {
            k: PLACEHOLDER.sub(replacement, v) if v is not None and "${" in v else v
            for k, v in props.items()
        }
        return Resolved(resolved, min(ttls, default=None))

    def placeholder_keys(self, props: Mapping[str, str | None]) -> set[str]:
        """Return the keys whose values contain a placeholder for a configured provider."""
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
    """Return the keys that declare providers. Connector configurations must not contain them."""
    return {
        key for key in props if key == "config.providers" or key.startswith("config.providers.")
    }
