"""Reads REST API users and passwords from the same files as Java's workers.

The environment variable `KAFKA_OPTS` names a JAAS file (`-Djava.security.auth.login.config=…`). The
entry `KafkaConnect` in that file names a login module. The module's option `file` is the path of a
properties file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import javaproperties

from connect_py.api.errors import ConfigError
from connect_py.java.jaas_config import parse_jaas

LOGIN_MODULE: Final = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
JAAS_OPTION: Final = "-Djava.security.auth.login.config="
JAAS_ENTRY: Final = "KafkaConnect"
_KEY: Final = "rest.extension.classes"
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_ENTRY: Final = re.compile(r"([\w.-]+)\s*\{(.*?)\}\s*;", re.DOTALL)


def jaas_users(environment: Mapping[str, str]) -> dict[str, str]:
    """Return passwords by user name. An empty result admits every user, as in Java.

    Raises:
        ConfigError: A file or an entry is missing or unreadable.
    """
    options = shlex.split(environment.get("KAFKA_OPTS", ""))
    paths = [
        option.removeprefix(JAAS_OPTION) for option in options if option.startswith(JAAS_OPTION)
    ]
    if not paths:
        raise ConfigError(
            _KEY, f"basic authentication requires KAFKA_OPTS with {JAAS_OPTION}<file>"
        )
    path = _property_file(paths[-1])
    try:
        users: dict[str, str] = javaproperties.loads(_read_file(path))
    except ValueError as error:
        raise ConfigError(_KEY, f"{path} is not a properties file") from error
    return users


def _property_file(path: str) -> str:
    entries = dict(_ENTRY.findall(_COMMENT.sub("", _read_file(path))))
    if JAAS_ENTRY not in entries:
        raise ConfigError(_KEY, f"{path} has no entry {JAAS_ENTRY}")
    try:
        module, options = parse_jaas(entries[JAAS_ENTRY])
    except ConfigError as error:
        raise ConfigError(
            _KEY,
            f"the entry {JAAS_ENTRY} in {path} is not of the form '<login module> "
            "required <options>;'",
        ) from error
    if module != LOGIN_MODULE or "file" not in options:
        raise ConfigError(
            _KEY, f"the entry {JAAS_ENTRY} in {path} must name {LOGIN_MODULE} with the option file"
        )
    return options["file"]


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(_KEY, f"cannot read {path}: {error}") from error
