"""Reads schemas from a registry with Confluent's API."""

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

UNKNOWN_ID_GRACE_SECONDS: Final = 5.0  # time for a replica to receive a new ID
REGISTRY: Final = "schema registry"  # name of the server in errors
# how long the error for an unknown ID is cached; also, how long unknown IDs fail immediately after
# another ID has remained unknown for its entire grace period
PATIENCE_SECONDS: Final = 60.0
_READING: Final = frozenset({"READ", "WRITEREAD"})
_WRITING: Final = frozenset({"WRITE", "WRITEREAD"})


class UnknownError(DataError):
    """The registry does not contain the schema, subject, or association."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema from the registry."""

    text: str
    kind: str  # AVRO, JSON, PROTOBUF
    # schemas, keyed by name; dependencies come first
    references: Mapping[str, str] = field(default_factory=dict)


class SchemaRegistry:
    """Reads schemas from the registry. Not thread-safe."""

    def __init__(
        self,
        configs: Mapping[str, str],
        monotonic: Callable[[], float] = time.monotonic,
        grace_seconds: float = UNKNOWN_ID_GRACE_SECONDS,
    ) -> None:
        """Create the client from the converter properties.

        Raises:
            ConfigError: A property is invalid.
        """
        self._monotonic = monotonic
        self._grace_seconds = grace_seconds
        self._unknown_since: dict[object, float] = {}
        self._refused: dict[
            object, tuple[float, UnknownError]
        ] = {}  # IDs that remained unknown, with the time of the error
        self._last_unknown_at = -PATIENCE_SECONDS
        self._client = open_client(configs)
        # URLs without passwords
        self._urls = re.sub(r"//[^/,]*@", "//", configs.get("schema.registry.url", ""))

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with an ID.

        Raises:
            DataError: The ID is unknown, or the schema has rules.
            UnavailableError: The registry is unavailable or does not contain the ID yet.
        """
        return self._lookup(schema_id, partial(self._client.get_schema, schema_id))

    def by_guid(self, guid: str) -> RegisteredSchema:
        """Return the schema with a GUID. Raises the same errors as `by_id`."""
        return self._lookup(guid, partial(self._client.get_schema_by_guid, guid))

    def of(self, schema: Any, *, writing: bool = True) -> RegisteredSchema:
        """Convert a schema object from the client library and fetch its references.

        Raises the same errors as `by_id`.
        """
        _refuse_rules(schema, _WRITING if writing else _READING)
        references: dict[str, str] = {}
        self._collect(schema, references)
        return RegisteredSchema(schema.schema_str or "", schema.schema_type or "AVRO", references)

    def version(self, subject: str, schema_id: int) -> int | None:
        """Return a schema's version in a subject, or None if it is not in the subject.

        Raises:
            UnavailableError: The registry is unavailable.
        """
        try:
            schema = self._call(partial(self._client.get_schema, schema_id))
            version: int = self._call(partial(self._client.lookup_schema, subject, schema)).version
        except DataError:
            return None
        return version

    def ask(self, request: Callable[[Any], Any]) -> Any:
        """Send a request with the client.

        Raises:
            DataError: The registry rejects the request.
            UnavailableError: The registry is unavailable.
        """
        return self._call(lambda: request(self._client))

    def _lookup(self, key: object, request: Callable[[], Any]) -> RegisteredSchema:
        now = self._monotonic()
        if key in self._refused:
            since, refusal = self._refused[key]
            if now - since < PATIENCE_SECONDS:
                raise UnknownError(str(refusal)) from refusal.__cause__
            del self._refused[key]
        try:
            schema = self._call(request)
        except UnknownError as error:
            since = self._unknown_since.setdefault(key, now)
            is_in_grace = now - since < self._grace_seconds
            if is_in_grace and now - self._last_unknown_at >= PATIENCE_SECONDS:
                raise UnavailableError(
                    f"the schema registry does not contain schema {key} yet", server=REGISTRY
                ) from error
            if not is_in_grace:
                self._last_unknown_at = now
            self._refuse(key, now, error)
            raise
        self._unknown_since.pop(key, None)
        return self.of(schema, writing=False)

    def _refuse(self, key: object, now: float, error: UnknownError) -> None:
        """Cache an error for a limited time.

        Expired errors are removed because corrupt messages may contain any number of different IDs.
        """
        del self._unknown_since[key]
        while self._refused and now - next(iter(self._refused.values()))[0] >= PATIENCE_SECONDS:
            del self._refused[next(iter(self._refused))]
        self._refused[key] = now, error

    def _collect(self, schema: Any, into: dict[str, str]) -> None:
        for reference in schema.references or []:
            if reference.name not in into:
                request = partial(self._client.get_version, reference.subject, reference.version)
                referenced_schema = self._call(request).schema
                self._collect(referenced_schema, into)
                into[reference.name] = referenced_schema.schema_str or ""

    def _call(self, request: Callable[[], Any]) -> Any:
        import httpx2  # the HTTP client of confluent_kafka
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            return request()
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status in (408, 429) or status >= 500 or status < 0:
                text = f"the schema registry responded with {status}: {error.error_message}"
                raise UnavailableError(text, server=REGISTRY) from error
            refusal = UnknownError if status == 404 else DataError
            raise refusal(
                f"the schema registry responded with {status}: {error.error_message}"
            ) from error
        except (
            httpx2.RequestError,
            OAuthTokenError,
            json.JSONDecodeError,
        ) as error:  # JSONDecodeError if a proxy responds with an HTML page
            text = f"the schema registry at {self._urls} cannot be reached: {error}"
            raise UnavailableError(text, server=REGISTRY) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _refuse_rules(schema: Any, modes: frozenset[str]) -> None:
    """Check that a schema has no active data contract rules, such as field-level encryption.

    Raises:
        DataError: The schema has rules, which are not supported.
    """
    rules = schema.rule_set and [
        *(schema.rule_set.domain_rules or ()),
        *(schema.rule_set.encoding_rules or ()),
    ]
    names = [
        str(rule.name) for rule in rules or () if str(rule.mode) in modes and not rule.disabled
    ]
    if names:
        raise DataError(f"the schema has rules, which are not supported: {', '.join(names)}")
