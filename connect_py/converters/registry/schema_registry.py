"""The schemas of a registry that speaks Confluent's API, by id."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from connect_py.api.errors import DataError, UnavailableError
from connect_py.converters.registry.registry_client import open_client

UNKNOWN_ID_GRACE_SECONDS: Final = 5.0  # a replicated registry may learn of an id late
REGISTRY: Final = "schema registry"  # what a task waits for
# after a grace in vain: unknown ids get none, and are not asked for again
PATIENCE_SECONDS: Final = 60.0
_READING: Final = frozenset({"READ", "WRITEREAD"})
_WRITING: Final = frozenset({"WRITE", "WRITEREAD"})


class UnknownError(DataError):
    """The registry does not know what it was asked for."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it."""

    text: str
    kind: str  # AVRO, JSON, PROTOBUF
    references: Mapping[str, str] = field(default_factory=dict)  # name -> text, dependencies first


class SchemaRegistry:
    """Looks schemas up. Used on one thread."""

    def __init__(
        self,
        configs: Mapping[str, str],
        monotonic: Callable[[], float] = time.monotonic,
        grace_seconds: float = UNKNOWN_ID_GRACE_SECONDS,
    ) -> None:
        """Take the converter's properties.

        Raises:
            ConfigError: A property is not acceptable.
        """
        self._monotonic = monotonic
        self._grace_seconds = grace_seconds
        self._unknown_since: dict[object, float] = {}
        self._refused: dict[
            object, tuple[float, UnknownError]
        ] = {}  # ids that were waited for in vain, and since when
        self._last_in_vain = -PATIENCE_SECONDS
        self._client = open_client(configs)
        # they may hold a password
        self._urls = re.sub(r"//[^/,]*@", "//", configs.get("schema.registry.url", ""))

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id.

        Raises:
            DataError: There is none, or it has rules.
            UnavailableError: The registry is away, or does not know the id yet.
        """
        return self._found(schema_id, partial(self._client.get_schema, schema_id))

    def by_guid(self, guid: str) -> RegisteredSchema:
        """Return the schema of a GUID; errors as for `by_id`."""
        return self._found(guid, partial(self._client.get_schema_by_guid, guid))

    def of(self, schema: Any, *, writing: bool = True) -> RegisteredSchema:
        """Put the client's form of a schema together with those it refers to; errors as for
        `by_id`."""
        _refuse_rules(schema, _WRITING if writing else _READING)
        references: dict[str, str] = {}
        self._collect(schema, references)
        return RegisteredSchema(schema.schema_str or "", schema.schema_type or "AVRO", references)

    def version(self, subject: str, schema_id: int) -> int | None:
        """Return the version under which a subject has this schema; None: it has not.

        Raises:
            UnavailableError: The registry is away.
        """
        try:
            schema = self._call(partial(self._client.get_schema, schema_id))
            version: int = self._call(partial(self._client.lookup_schema, subject, schema)).version
        except DataError:
            return None
        return version

    def ask(self, request: Callable[[Any], Any]) -> Any:
        """Ask the client itself.

        Raises:
            DataError: The registry refuses.
            UnavailableError: The registry is away.
        """
        return self._call(lambda: request(self._client))

    def _found(self, key: object, look_up: Callable[[], Any]) -> RegisteredSchema:
        now = self._monotonic()
        if key in self._refused:
            since, refusal = self._refused[key]
            if now - since < PATIENCE_SECONDS:
                raise UnknownError(str(refusal)) from refusal.__cause__
            del self._refused[key]
        try:
            schema = self._call(look_up)
        except UnknownError as error:
            since = self._unknown_since.setdefault(key, now)
            waits = now - since < self._grace_seconds
            if waits and now - self._last_in_vain >= PATIENCE_SECONDS:
                raise UnavailableError(
                    f"the registry does not know schema {key} yet", server=REGISTRY
                ) from error
            if not waits:
                self._last_in_vain = now
            self._refuse(key, now, error)
            raise
        self._unknown_since.pop(key, None)
        return self.of(schema, writing=False)

    def _refuse(self, key: object, now: float, error: UnknownError) -> None:
        """Remember an answer for a while: damaged messages may name any number of ids."""
        del self._unknown_since[key]
        while self._refused and now - next(iter(self._refused.values()))[0] >= PATIENCE_SECONDS:
            del self._refused[next(iter(self._refused))]
        self._refused[key] = now, error

    def _collect(self, schema: Any, into: dict[str, str]) -> None:
        for reference in schema.references or []:
            if reference.name not in into:
                look_up = partial(self._client.get_version, reference.subject, reference.version)
                other = self._call(look_up).schema
                self._collect(other, into)
                into[reference.name] = other.schema_str or ""

    def _call(self, request: Callable[[], Any]) -> Any:
        import httpx2  # what confluent_kafka speaks HTTP with
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            return request()
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status in (408, 429) or status >= 500 or status < 0:
                text = f"the schema registry answers {status}: {error.error_message}"
                raise UnavailableError(text, server=REGISTRY) from error
            refusal = UnknownError if status == 404 else DataError
            raise refusal(f"the schema registry answers {status}: {error.error_message}") from error
        except (
            httpx2.RequestError,
            OAuthTokenError,
            json.JSONDecodeError,
        ) as error:  # the last: a proxy's own page
            text = f"the schema registry at {self._urls} cannot be reached: {error}"
            raise UnavailableError(text, server=REGISTRY) from error

    def close(self) -> None:
        """Close connections."""
        self._client.close()


def _refuse_rules(schema: Any, modes: frozenset[str]) -> None:
    """Rules of data contracts, such as the encryption of fields, are not run here. DataError: there
    are some."""
    rules = schema.rule_set and [
        *(schema.rule_set.domain_rules or ()),
        *(schema.rule_set.encoding_rules or ()),
    ]
    names = [
        str(rule.name) for rule in rules or () if str(rule.mode) in modes and not rule.disabled
    ]
    if names:
        raise DataError(f"the schema has rules, which are not run here: {', '.join(names)}")
