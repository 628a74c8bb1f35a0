"""The schemas of a registry that speaks Confluent's API, by id."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from connect_py.api.config import ConfigDef, Importance, Password, Type
from connect_py.api.errors import ConfigError, DataError, UnavailableError

UNKNOWN_ID_GRACE_SECONDS: Final = 5.0  # a replicated registry may learn of an id late

CONFIG_DEF: Final = (
    ConfigDef()
    .define("schema.registry.url", Type.LIST, importance=Importance.HIGH,
            doc="URLs of the registry's servers, separated by commas.")
    .define("max.schemas.per.subject", Type.INT, default=1000, importance=Importance.LOW,
            doc="How many schemas are kept in memory.")
    .define("basic.auth.credentials.source", Type.STRING, default="URL", importance=Importance.MEDIUM,
            doc="Where the user comes from: URL or USER_INFO.")
    .define("basic.auth.user.info", Type.PASSWORD, default="", importance=Importance.MEDIUM,
            doc="user:password, with USER_INFO.")
    .define("schema.registry.basic.auth.user.info", Type.PASSWORD, default="", importance=Importance.LOW,
            doc="The old name of basic.auth.user.info.")
    .define("bearer.auth.credentials.source", Type.STRING, default="", importance=Importance.MEDIUM,
            doc="STATIC_TOKEN, OAUTHBEARER, or empty for none.")
    .define("bearer.auth.token", Type.PASSWORD, default="", importance=Importance.MEDIUM, doc="The static token.")
    .define("bearer.auth.issuer.endpoint.url", Type.STRING, default="", importance=Importance.MEDIUM,
            doc="Where OAuth tokens come from.")
    .define("bearer.auth.client.id", Type.STRING, default="", importance=Importance.MEDIUM, doc="OAuth client id.")
    .define("bearer.auth.client.secret", Type.PASSWORD, default="", importance=Importance.MEDIUM,
            doc="OAuth client secret.")
    .define("bearer.auth.scope", Type.STRING, default="", importance=Importance.MEDIUM, doc="OAuth scope.")
    .define("bearer.auth.logical.cluster", Type.STRING, default="", importance=Importance.MEDIUM,
            doc="The logical cluster that goes with the token.")
    .define("bearer.auth.identity.pool.id", Type.STRING, default="", importance=Importance.MEDIUM,
            doc="The identity pool that goes with the token.")
    .define("schema.registry.ssl.ca.location", Type.STRING, default="", importance=Importance.MEDIUM,
            doc="A PEM file with the authorities to trust.")
    .define("schema.registry.ssl.truststore.location", Type.STRING, default="", importance=Importance.MEDIUM,
            doc="A PEM file with the authorities to trust, if schema.registry.ssl.truststore.type is PEM.")
    .define("schema.registry.ssl.truststore.type", Type.STRING, default="JKS", importance=Importance.MEDIUM,
            doc="The format of the trust store.")
    .define("proxy.host", Type.STRING, default="", importance=Importance.LOW, doc="The proxy's host.")
    .define("proxy.port", Type.INT, default=-1, importance=Importance.LOW, doc="The proxy's port.")
    .define("http.read.timeout.ms", Type.INT, default=10_000, importance=Importance.LOW,
            doc="How long to wait for an answer.")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it."""

    text: str
    kind: str  # AVRO, JSON, PROTOBUF
    references: Mapping[str, str] = field(default_factory=dict)  # name -> text, dependencies first


class SchemaRegistry:
    """Looks schemas up, each once. Used on one thread."""

    def __init__(self, configs: Mapping[str, str], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Take the converter's properties.

        Raises:
            ConfigError: A property is not acceptable.
        """
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._monotonic = monotonic
        self._unknown_since: dict[object, float] = {}
        try:
            self._client = SchemaRegistryClient(_client_configs(configs))
        except (ValueError, TypeError) as error:
            raise ConfigError("schema.registry.url", str(error)) from error

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id.

        Raises:
            DataError: There is none.
            UnavailableError: The registry is away, or does not know the id yet.
        """
        return self._found(schema_id, partial(self._client.get_schema, schema_id))

    def by_guid(self, guid: str) -> RegisteredSchema:
        """Return the schema of a GUID; errors as for `by_id`."""
        return self._found(guid, partial(self._client.get_schema_by_guid, guid))

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
        try:
            schema = self._call(look_up)
        except DataError as error:
            since = self._unknown_since.setdefault(key, self._monotonic())
            if self._monotonic() - since < UNKNOWN_ID_GRACE_SECONDS:
                raise UnavailableError(f"the registry does not know schema {key} yet") from error
            raise
        self._unknown_since.pop(key, None)
        references: dict[str, str] = {}
        self._collect(schema, references)
        return RegisteredSchema(schema.schema_str, schema.schema_type or "AVRO", references)

    def _collect(self, schema: Any, into: dict[str, str]) -> None:
        for reference in schema.references or []:
            if reference.name not in into:
                look_up = partial(self._client.get_version, reference.subject, reference.version)
                other = self._call(look_up).schema
                self._collect(other, into)
                into[reference.name] = other.schema_str

    def _call(self, request: Callable[[], Any]) -> Any:
        import httpx2  # what confluent_kafka speaks HTTP with
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            return request()
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status in (408, 429) or status >= 500 or status < 0:
                raise UnavailableError(f"the schema registry answers {status}: {error.error_message}") from error
            raise DataError(f"the schema registry answers {status}: {error.error_message}") from error
        except (httpx2.RequestError, OAuthTokenError, json.JSONDecodeError) as error:  # the last: a proxy's own page
            raise UnavailableError(f"the schema registry cannot be reached: {error}") from error

    def close(self) -> None:
        """Close connections."""
        self._client.__exit__(None, None, None)  # type: ignore[no-untyped-call] # its only way to close


def _client_configs(configs: Mapping[str, str]) -> dict[str, Any]:
    parsed = CONFIG_DEF.parse(configs)
    client: dict[str, Any] = {
        "url": ",".join(parsed["schema.registry.url"]),
        "timeout": parsed["http.read.timeout.ms"] / 1000,
        "max.retries": 0,  # the worker retries, and keeps its consumer alive meanwhile
        "cache.capacity": parsed["max.schemas.per.subject"],
    }
    source = parsed["basic.auth.credentials.source"].upper()
    if source in ("USER_INFO", "SASL_INHERIT"):
        user: Password = parsed["basic.auth.user.info"]
        client["basic.auth.user.info"] = user.value or parsed["schema.registry.basic.auth.user.info"].value
    elif source != "URL":
        raise ConfigError("basic.auth.credentials.source", "must be URL or USER_INFO")
    if parsed["bearer.auth.credentials.source"]:
        client["bearer.auth.credentials.source"] = parsed["bearer.auth.credentials.source"]
        for key in ("token", "issuer.endpoint.url", "client.id", "client.secret", "scope", "logical.cluster",
                    "identity.pool.id"):  # fmt: skip
            value = parsed[f"bearer.auth.{key}"]
            if text := value.value if isinstance(value, Password) else value:
                client[f"bearer.auth.{key}"] = text
    authorities = parsed["schema.registry.ssl.ca.location"]
    if parsed["schema.registry.ssl.truststore.location"]:
        if parsed["schema.registry.ssl.truststore.type"].upper() != "PEM":
            raise ConfigError("schema.registry.ssl.truststore.type", "must be PEM")
        authorities = parsed["schema.registry.ssl.truststore.location"]
    if authorities:
        client["ssl.ca.location"] = authorities
    if parsed["proxy.host"]:
        client["proxy"] = f"http://{parsed['proxy.host']}:{parsed['proxy.port']}"
    return client
