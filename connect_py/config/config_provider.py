"""Placeholders `${provider:path:key}` in configurations, and the three providers that resolve them.

Results are not expanded again. A placeholder of an unknown provider, or of a key that is not found, stays as it is.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from connect_py.api.config import ConfigValueError, with_prefix
from connect_py.api.errors import ConfigError
from connect_py.config.properties_file import read_properties

log = logging.getLogger(__name__)

PLACEHOLDER = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
Text = TypeVar("Text", str, str | None)


class ConfigProvider(ABC):
    """Looks up values outside of configurations. Called from any thread."""

    @abstractmethod
    def get(self, path: str, key: str) -> str | None:
        """Return one value; None when it is not found.

        Raises:
            ConfigError: The place cannot be read.
        """


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
        log.warning("the path %s is not allowed to be accessed; change allowed.paths to permit it", normal)
        return None


class FileConfigProvider(ConfigProvider):
    """Reads properties files: path is the file, key the property."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self._allowed = AllowedPaths(params.get("allowed.paths"))

    def get(self, path: str, key: str) -> str | None:
        file = self._allowed.check(path) if path else None
        if file is None:
            return None
        try:
            return read_properties(file).get(key)
        except (OSError, ValueError) as error:
            raise ConfigError("", f"Could not read properties from file {path}") from error


class DirectoryConfigProvider(ConfigProvider):
    """Reads whole files: path is the folder, key the file's name."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self._allowed = AllowedPaths(params.get("allowed.paths"))

    def get(self, path: str, key: str) -> str | None:
        folder = self._allowed.check(path) if path else None
        if folder is None:
            return None
        file = folder / key
        if not key or file.parent != folder or not file.is_file():
            return None
        try:
            return file.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError("", f"Could not read file {file} for property {key}") from error


class EnvVarConfigProvider(ConfigProvider):
    """Reads environment variables: no path, key is the variable."""

    def __init__(self, params: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        pattern = params.get("allowlist.pattern") or ".*"
        try:
            self._allowed = re.compile(pattern)
        except re.error as error:
            raise ConfigError("allowlist.pattern", f"{pattern} is not a valid regular expression") from error
        self._environment = os.environ if environment is None else environment

    def get(self, path: str, key: str) -> str | None:
        if path:
            raise ConfigError("", "Path is not supported for EnvVarConfigProvider, invalid value '" + path + "'")
        return self._environment.get(key) if self._allowed.fullmatch(key) else None


PROVIDERS = {
    "FileConfigProvider": FileConfigProvider,
    "DirectoryConfigProvider": DirectoryConfigProvider,
    "EnvVarConfigProvider": EnvVarConfigProvider,
}
SHORT_NAMES = {"file": FileConfigProvider, "directory": DirectoryConfigProvider, "env": EnvVarConfigProvider}


def _provider(name: str, params: Mapping[str, str], class_name: str | None) -> ConfigProvider:
    if class_name is None:
        raise ConfigError(
            "", f'Missing required configuration "config.providers.{name}.class" which has no default value.'
        )
    known = PROVIDERS.get(class_name.rpartition(".")[2]) or SHORT_NAMES.get(class_name)
    if known is None:
        raise ConfigValueError(
            f"config.providers.{name}.class", class_name,
            "Could not load config provider class or one of its dependencies",
        )  # fmt: skip
    return known(params)


class ConfigResolver:
    """Replaces placeholders by what the named providers answer."""

    def __init__(self, providers: Mapping[str, ConfigProvider]) -> None:
        self._providers = dict(providers)

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
        return {key: self._resolve_one(key, value) for key, value in props.items()}

    def _resolve_one(self, key: str, value: Text) -> Text:
        if value is None or "${" not in value:
            return value

        def replacement(match: re.Match[str]) -> str:
            provider = self._providers.get(match[1])
            if provider is None:
                log.warning(
                    "configuration %s names the config provider %s, which the worker does not have", key, match[1]
                )
                return match[0]
            found = provider.get((match[3] or "").strip(), match[4].strip())
            return match[0] if found is None else found

        return PLACEHOLDER.sub(replacement, value)

    def placeholder_keys(self, props: Mapping[str, str | None]) -> set[str]:
        """The keys whose values hold a placeholder of a known provider."""
        return {
            key
            for key, value in props.items()
            if value and any(match[1] in self._providers for match in PLACEHOLDER.finditer(value))
        }

    def put_back(self, derived: Mapping[str, str], original: Mapping[str, str | None]) -> dict[str, str]:
        """Replace resolved values in a derived configuration by the placeholders they came from, where a key's value
        is the resolved one of the same key."""
        resolved = self.resolve({key: original[key] for key in self.placeholder_keys(original)})
        return {
            key: original[key] or value if key in resolved and resolved[key] == value else value
            for key, value in derived.items()
        }


def named_providers(props: Iterable[str]) -> set[str]:
    """The keys that declare providers, which connector configurations may not carry."""
    return {key for key in props if key == "config.providers" or key.startswith("config.providers.")}
