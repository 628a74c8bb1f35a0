"""Creates schema registry clients from the properties that the Java client uses."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from connect_py.api.config import ConfigDef, Importance, Password, Type, at_least, with_prefix
from connect_py.api.errors import ConfigError
from connect_py.java.jaas_config import parse_jaas
from connect_py.tls.tls_context import client_context

_SSL: Final = "schema.registry.ssl."
_HEADER: Final = "request.header."
_TLS_DOCS: Final[Mapping[str, tuple[Type, str]]] = {
    "truststore.location": (
        Type.STRING,
        "Trust store: a PEM, JKS, or PKCS12 file with certificate authorities.",
    ),
    "truststore.type": (Type.STRING, "PEM. JKS and PKCS12 files are detected automatically."),
    "truststore.password": (Type.PASSWORD, "Password for the trust store."),
    "truststore.certificates": (Type.PASSWORD, "Certificate authorities, as PEM data."),
    "keystore.location": (
        Type.STRING,
        "Key store: a PEM, JKS, or PKCS12 file with the key of the client.",
    ),
    "keystore.type": (Type.STRING, "PEM. JKS and PKCS12 files are detected automatically."),
    "keystore.password": (Type.PASSWORD, "Password for the key store."),
    "keystore.key": (Type.PASSWORD, "Key of the client, as PEM data."),
    "keystore.certificate.chain": (
        Type.PASSWORD,
        "Certificate chain for the key, as PEM data.",
    ),
    "key.password": (Type.PASSWORD, "Password for the key."),
    "endpoint.identification.algorithm": (
        Type.STRING,
        "https (the default) verifies host names. An empty value disables the verification.",
    ),
    "enabled.protocols": (Type.STRING, "TLS versions."),
    "cipher.suites": (Type.STRING, "Cipher suites up to TLS 1.2."),
}
CONFIG_DEF: Final = (
    ConfigDef()
    .define(
        "schema.registry.url",
        Type.LIST,
        importance=Importance.HIGH,
        doc="URLs of the registry, separated by commas. Each request is sent to the first URL "
        "that responds.",
    )
    .define(
        "url.randomize",
        Type.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        doc="Start with a random URL instead of the first one.",
    )
    .define(
        "max.schemas.per.subject",
        Type.INT,
        default=1000,
        importance=Importance.LOW,
        doc="Ignored. See schemas.cache.config.",
    )
    .define(
        "latest.cache.size",
        Type.INT,
        default=1000,
        validator=at_least(1),
        importance=Importance.LOW,
        doc="Number of subjects whose latest version is cached.",
    )
    .define(
        "latest.cache.ttl.sec",
        Type.INT,
        default=-1,
        importance=Importance.LOW,
        doc="Time after which the cached latest version expires, in seconds. -1 disables the "
        "expiration.",
    )
    .define(
        "basic.auth.credentials.source",
        Type.STRING,
        default="URL",
        importance=Importance.MEDIUM,
        doc="Source of the user name: URL, USER_INFO, or SASL_INHERIT (sasl.jaas.config).",
    )
    .define(
        "basic.auth.user.info",
        Type.PASSWORD,
        default="",
        importance=Importance.MEDIUM,
        doc="User name and password for USER_INFO, in the form user:password.",
    )
    .define(
        "schema.registry.basic.auth.user.info",
        Type.PASSWORD,
        default="",
        importance=Importance.LOW,
        doc="Former name of basic.auth.user.info.",
    )
    .define(
        "sasl.jaas.config",
        Type.PASSWORD,
        default="",
        importance=Importance.LOW,
        doc="JAAS login module with the credentials for SASL_INHERIT and SASL_OAUTHBEARER_INHERIT.",
    )
    .define(
        "sasl.oauthbearer.token.endpoint.url",
        Type.STRING,
        default="",
        importance=Importance.LOW,
        doc="Token endpoint, for SASL_OAUTHBEARER_INHERIT.",
    )
    .define(
        "bearer.auth.credentials.source",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="STATIC_TOKEN, OAUTHBEARER, SASL_OAUTHBEARER_INHERIT, or empty to disable tokens.",
    )
    .define(
        "bearer.auth.token",
        Type.PASSWORD,
        default="",
        importance=Importance.MEDIUM,
        doc="Static token.",
    )
    .define(
        "bearer.auth.issuer.endpoint.url",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="OAuth token endpoint.",
    )
    .define(
        "bearer.auth.client.id",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="OAuth client ID.",
    )
    .define(
        "bearer.auth.client.secret",
        Type.PASSWORD,
        default="",
        importance=Importance.MEDIUM,
        doc="OAuth client secret.",
    )
    .define(
        "bearer.auth.scope",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="OAuth scope.",
    )
    .define(
        "bearer.auth.logical.cluster",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="Logical cluster of the token.",
    )
    .define(
        "bearer.auth.identity.pool.id",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="Identity pool of the token.",
    )
    .define(
        f"{_SSL}ca.location",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="PEM file with certificate authorities. This is the client library's name for the "
        "property.",
    )
    .define(
        "proxy.host", Type.STRING, default="", importance=Importance.LOW, doc="Host of the proxy."
    )
    .define("proxy.port", Type.INT, default=-1, importance=Importance.LOW, doc="Port of the proxy.")
    .define(
        "http.connect.timeout.ms",
        Type.INT,
        default=10_000,
        validator=at_least(1),
        importance=Importance.LOW,
        doc="Timeout for establishing a connection, in milliseconds.",
    )
    .define(
        "http.read.timeout.ms",
        Type.INT,
        default=10_000,
        validator=at_least(1),
        importance=Importance.LOW,
        doc="Timeout for receiving a response, in milliseconds.",
    )
    .define(
        "max.retries",
        Type.INT,
        default=3,
        importance=Importance.LOW,
        doc="Ignored. The worker retries indefinitely if the registry is unavailable.",
    )
    .define(
        "retries.wait.ms",
        Type.INT,
        default=1000,
        importance=Importance.LOW,
        doc="Ignored. See max.retries.",
    )
    .define(
        "retries.max.wait.ms",
        Type.INT,
        default=20_000,
        importance=Importance.LOW,
        doc="Ignored. See max.retries.",
    )
)
for _name, (_type, _doc) in _TLS_DOCS.items():
    CONFIG_DEF.define(f"{_SSL}{_name}", _type, default=None, importance=Importance.MEDIUM, doc=_doc)


def open_client(configs: Mapping[str, str]) -> Any:
    """Create a `SchemaRegistryClient` without sending a request.

    Properties that start with `request.header.` become request headers.

    Raises:
        ConfigError: A property is invalid.
    """
    import httpx2  # the HTTP client of confluent_kafka
    from confluent_kafka.schema_registry import SchemaRegistryClient

    parsed = CONFIG_DEF.parse(configs)
    headers = with_prefix(configs, _HEADER)
    settings = {
        "url": _urls(parsed),
        "timeout": httpx2.Timeout(
            parsed["http.read.timeout.ms"] / 1000, connect=_connect_seconds(parsed)
        ),
        "max.retries": 0,  # the worker retries, and keeps polling its consumer
        "cache.capacity": parsed["latest.cache.size"],
        **_basic(parsed),
        **_bearer(parsed, headers),
    }
    if parsed["latest.cache.ttl.sec"] >= 0:
        settings["cache.latest.ttl.sec"] = parsed["latest.cache.ttl.sec"]
    if parsed[f"{_SSL}ca.location"]:
        settings["ssl.ca.location"] = parsed[f"{_SSL}ca.location"]
    if parsed["proxy.host"]:
        settings["proxy"] = f"http://{parsed['proxy.host']}:{parsed['proxy.port']}"
    try:
        client = SchemaRegistryClient(settings)
    except (ValueError, TypeError) as error:
        raise ConfigError("schema.registry.url", str(error)) from error
    tls = {
        f"ssl.{key}": value for key, value in with_prefix(configs, _SSL).items() if key in _TLS_DOCS
    }
    rest = client._rest_client  # the client has no settings for headers or Java key stores
    if tls:
        rest.verify = _tls(tls)
    if tls or headers:
        rest.session.close()
        rest.session = httpx2.Client(
            verify=rest.verify,
            auth=rest.auth,
            proxy=rest.proxy,
            timeout=rest.timeout,
            headers=headers,
        )
    return client


def _urls(parsed: Mapping[str, Any]) -> str:
    urls: list[str] = [url for url in parsed["schema.registry.url"] if url]
    if any(url.startswith("mock:") for url in urls):
        raise ConfigError("schema.registry.url", "in-memory registries (mock:) are not supported")
    if not all(map(_is_url, urls)):  # the error omits the URL, which may contain a password
        raise ConfigError("schema.registry.url", "must be URLs that begin with http:// or https://")
    if parsed["url.randomize"]:
        random.shuffle(urls)
    return ",".join(urls)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return text.startswith(("http://", "https://")) and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid address or port
        return False


def _connect_seconds(parsed: Mapping[str, Any]) -> float:
    seconds: float = parsed["http.connect.timeout.ms"] / 1000
    return seconds


def _basic(parsed: Mapping[str, Any]) -> dict[str, str]:
    source = parsed["basic.auth.credentials.source"].upper()
    if source == "URL":
        return {}
    if source == "SASL_INHERIT":
        _, options = _login(parsed)
        if not options.keys() >= {"username", "password"}:
            raise ConfigError(
                "sasl.jaas.config", "SASL_INHERIT requires the options username and password"
            )
        return {"basic.auth.user.info": f"{options['username']}:{options['password']}"}
    if source != "USER_INFO":
        raise ConfigError(
            "basic.auth.credentials.source", "must be URL, USER_INFO, or SASL_INHERIT"
        )
    old: Password = parsed["schema.registry.basic.auth.user.info"]
    return {"basic.auth.user.info": parsed["basic.auth.user.info"].value or old.value}


def _login(parsed: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    text: Password = parsed["sasl.jaas.config"]
    return parse_jaas(text.value)


def _bearer(parsed: Mapping[str, Any], headers: dict[str, str]) -> dict[str, str]:
    """Return the settings for OAuth tokens, and add a static token to the headers."""
    source = parsed["bearer.auth.credentials.source"].upper()
    cluster, pool = parsed["bearer.auth.logical.cluster"], parsed["bearer.auth.identity.pool.id"]
    if source == "STATIC_TOKEN":
        token: Password = parsed["bearer.auth.token"]
        if not token.value:
            raise ConfigError("bearer.auth.token", "is required by STATIC_TOKEN")
        optional_headers = {"target-sr-cluster": cluster, "Confluent-Identity-Pool-Id": pool}
        headers |= {
            "Authorization": f"Bearer {token.value}",
            **{name: text for name, text in optional_headers.items() if text},
        }
        return {}
    if not source:
        return {}
    if source == "SASL_OAUTHBEARER_INHERIT":
        _, options = _login(parsed)
        address = parsed["sasl.oauthbearer.token.endpoint.url"]
        login = (
            options.get("clientId", ""),
            options.get("clientSecret", ""),
            options.get("scope", ""),
        )
    elif source == "OAUTHBEARER":
        address = parsed["bearer.auth.issuer.endpoint.url"]
        secret: Password = parsed["bearer.auth.client.secret"]
        login = parsed["bearer.auth.client.id"], secret.value, parsed["bearer.auth.scope"]
    else:
        raise ConfigError(
            "bearer.auth.credentials.source",
            "must be STATIC_TOKEN, OAUTHBEARER, or SASL_OAUTHBEARER_INHERIT; Java classes are not "
            "supported",
        )
    if not address:
        raise ConfigError("bearer.auth.issuer.endpoint.url", f"is required by {source}")
    names = (
        "client.id",
        "client.secret",
        "scope",
        "issuer.endpoint.url",
        "logical.cluster",
        "credentials.source",
    )
    values = (*login, address, cluster, "OAUTHBEARER")
    settings = {f"bearer.auth.{name}": value for name, value in zip(names, values, strict=True)}
    return settings | ({"bearer.auth.identity.pool.id": pool} if pool else {})


def _tls(props: dict[str, str]) -> Any:
    try:
        return client_context({"ssl.endpoint.identification.algorithm": "https", **props})
    except ConfigError as error:
        raise ConfigError(f"schema.registry.{error.key}", error.why) from error
