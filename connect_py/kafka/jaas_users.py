"""Users and passwords of the REST API, where Java's workers have them.

The environment variable `KAFKA_OPTS` names a JAAS file (`-Djava.security.auth.login.config=…`); its
entry `KafkaConnect` names a login module, and that one's option `file` a property file.
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
    """Passwords by user; empty lets everybody in, as Java's login module does.

    Raises:
        ConfigError: A step on the way there is missing or cannot be read.
    """
    options = shlex.split(environment.get("KAFKA_OPTS", ""))
    paths = [
        option.removeprefix(JAAS_OPTION) for option in options if option.startswith(JAAS_OPTION)
    ]
    if not paths:
        raise ConfigError(_KEY, f"basic authentication needs KAFKA_OPTS with {JAAS_OPTION}<file>")
    path = _property_file(paths[-1])
    try:
        users: dict[str, str] = javaproperties.loads(_text_of(path))
    except ValueError as error:
        raise ConfigError(_KEY, f"{path} is no property file") from error
    return users


def _property_file(path: str) -> str:
    entries = dict(_ENTRY.findall(_COMMENT.sub("", _text_of(path))))
    if JAAS_ENTRY not in entries:
        raise ConfigError(_KEY, f"{path} has no entry {JAAS_ENTRY}")
    try:
        module, options = parse_jaas(entries[JAAS_ENTRY])
    except ConfigError as error:
        raise ConfigError(
            _KEY, f"the entry {JAAS_ENTRY} in {path} is no '<login module> required <options>;'"
        ) from error
    if module != LOGIN_MODULE or "file" not in options:
        raise ConfigError(
            _KEY, f"the entry {JAAS_ENTRY} in {path} must name {LOGIN_MODULE} with the option file"
        )
    return options["file"]


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(_KEY, f"{path} cannot be read: {error}") from error
