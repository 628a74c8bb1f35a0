"""`BasicAuth`: who may call the API, by the users of a property file; Connect's extension of that name.

The file is named where Java's workers have it: the entry `KafkaConnect` of the JAAS file that the environment variable
`KAFKA_OPTS` passes with `-Djava.security.auth.login.config=…`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import javaproperties

from connect_py.api.errors import ConfigError
from rest.errors import RestError

EXTENSION: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
LOGIN_MODULE: Final = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
JAAS_OPTION: Final = "-Djava.security.auth.login.config="
JAAS_ENTRY: Final = "KafkaConnect"
REFUSED: Final = "User cannot access the resource."
_KEY: Final = "rest.extension.classes"
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_ENTRY: Final = re.compile(r"([\w.-]+)\s*\{(.*?)\}\s*;", re.DOTALL)
_MODULE: Final = re.compile(r"([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b([^;]*);", re.IGNORECASE)
_FILE: Final = re.compile(r"""\bfile\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;]+))""")


class BasicAuth:
    """Knows users and passwords; an empty list of users lets everybody in, as Java's login module does."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = dict(users)

    @staticmethod
    def of(environment: Mapping[str, str]) -> BasicAuth:
        """Find and read the property file.

        Raises:
            ConfigError: A step on the way there is missing or cannot be read.
        """
        path = next(
            (
                option.removeprefix(JAAS_OPTION)
                for option in reversed(shlex.split(environment.get("KAFKA_OPTS", "")))
                if option.startswith(JAAS_OPTION)
            ),
            None,
        )
        if path is None:
            raise ConfigError(_KEY, f"basic authentication needs KAFKA_OPTS with {JAAS_OPTION}<file>")
        return BasicAuth(_users(_property_file(_text_of(Path(path)), path)))

    def permits(self, authorization: str | None) -> bool:
        """Whether a request with this header may pass.

        Raises:
            RestError: 500, what should be base64 is not: Java answers so.
        """
        given = _credentials(authorization)
        if not self._users:
            return True
        if given is None:
            return False
        user, password = given
        expected = self._users.get(user)
        return expected is not None and hmac.compare_digest(expected.encode(), password.encode())


def _credentials(authorization: str | None) -> tuple[str, str] | None:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError) as error:
        raise RestError(500, "Illegal base64 character in the Authorization header") from error
    user, colon, password = text.partition(":")
    return (user, password) if user and colon else None


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(_KEY, f"{path} cannot be read: {error}") from error


def _property_file(jaas: str, source: str) -> str:
    entries = dict(_ENTRY.findall(_COMMENT.sub("", jaas)))
    if JAAS_ENTRY not in entries:
        raise ConfigError(_KEY, f"{source} has no entry {JAAS_ENTRY}")
    modules = _MODULE.findall(entries[JAAS_ENTRY])
    if [name for name, _ in modules] != [LOGIN_MODULE]:
        raise ConfigError(_KEY, f"the entry {JAAS_ENTRY} in {source} must name one login module, {LOGIN_MODULE}")
    found = _FILE.search(modules[0][1])
    if found is None:
        raise ConfigError(_KEY, f"the login module in {source} needs the option file")
    return found[1] or found[2] or found[3] or ""


def _users(path: str) -> dict[str, str]:
    try:
        users: dict[str, str] = javaproperties.loads(_text_of(Path(path)))
    except ValueError as error:
        raise ConfigError(_KEY, f"{path} is no property file: {error}") from error
    return users
