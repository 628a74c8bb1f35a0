"""The client of a schema registry, made from Java's properties."""

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
        "A file with the authorities to trust: PEM, JKS or PKCS12.",
    ),
    "truststore.type": (Type.STRING, "PEM; a JKS or PKCS12 file shows by itself which it is."),
    "truststore.password": (Type.PASSWORD, "The password of the trust store."),
    "truststore.certificates": (Type.PASSWORD, "The authorities to trust, as PEM texts."),
    "keystore.location": (Type.STRING, "A file with the key to show: PEM, JKS or PKCS12."),
    "keystore.type": (Type.STRING, "PEM; a JKS or PKCS12 file shows by itself which it is."),
    "keystore.password": (Type.PASSWORD, "The password of the key store."),
    "keystore.key": (Type.PASSWORD, "The key to show, as PEM text."),
    "keystore.certificate.chain": (
        Type.PASSWORD,
        "The certificates that go with the key, as PEM texts.",
    ),
    "key.password": (Type.PASSWORD, "The password of the key."),
    "endpoint.identification.algorithm": (
        Type.STRING,
        "https checks host names, as by default; empty does not.",
    ),
    "enabled.protocols": (Type.STRING, "The versions of TLS to speak."),
    "cipher.suites": (Type.STRING, "The cipher suites to use, up to TLS 1.2."),
}
CONFIG_DEF: Final = (
    ConfigDef()
    .define(
        "schema.registry.url",
        Type.LIST,
        importance=Importance.HIGH,
        doc="URLs of the registry's servers, separated by commas; each request goes to the first "
        "that answers.",
    )
    .define(
        "url.randomize",
        Type.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        doc="Begin with any of the URLs, not with the first.",
    )
    .define(
        "max.schemas.per.subject",
        Type.INT,
        default=1000,
        importance=Importance.LOW,
        doc="Accepted; see schemas.cache.config.",
    )
    .define(
        "latest.cache.size",
        Type.INT,
        default=1000,
        validator=at_least(1),
        importance=Importance.LOW,
        doc="Of how many subjects the latest version is remembered.",
    )
    .define(
        "latest.cache.ttl.sec",
        Type.INT,
        default=-1,
        importance=Importance.LOW,
        doc="Seconds after which the latest version is asked for again; -1: never.",
    )
    .define(
        "basic.auth.credentials.source",
        Type.STRING,
        default="URL",
        importance=Importance.MEDIUM,
        doc="Where the user comes from: URL, USER_INFO, or SASL_INHERIT for that of "
        "sasl.jaas.config.",
    )
    .define(
        "basic.auth.user.info",
        Type.PASSWORD,
        default="",
        importance=Importance.MEDIUM,
        doc="user:password, with USER_INFO.",
    )
    .define(
        "schema.registry.basic.auth.user.info",
        Type.PASSWORD,
        default="",
        importance=Importance.LOW,
        doc="The old name of basic.auth.user.info.",
    )
    .define(
        "sasl.jaas.config",
        Type.PASSWORD,
        default="",
        importance=Importance.LOW,
        doc="The login module whose user SASL_INHERIT and SASL_OAUTHBEARER_INHERIT take.",
    )
    .define(
        "sasl.oauthbearer.token.endpoint.url",
        Type.STRING,
        default="",
        importance=Importance.LOW,
        doc="Where tokens come from, with SASL_OAUTHBEARER_INHERIT.",
    )
    .define(
        "bearer.auth.credentials.source",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="STATIC_TOKEN, OAUTHBEARER, SASL_OAUTHBEARER_INHERIT, or empty for none.",
    )
    .define(
        "bearer.auth.token",
        Type.PASSWORD,
        default="",
        importance=Importance.MEDIUM,
        doc="The static token.",
    )
    .define(
        "bearer.auth.issuer.endpoint.url",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="Where OAuth tokens come from.",
    )
    .define(
        "bearer.auth.client.id",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="OAuth client id.",
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
        doc="The logical cluster that goes with the token.",
    )
    .define(
        "bearer.auth.identity.pool.id",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="The identity pool that goes with the token.",
    )
    .define(
        f"{_SSL}ca.location",
        Type.STRING,
        default="",
        importance=Importance.MEDIUM,
        doc="A PEM file with the authorities to trust, as the client library names it.",
    )
    .define(
        "proxy.host", Type.STRING, default="", importance=Importance.LOW, doc="The proxy's host."
    )
    .define("proxy.port", Type.INT, default=-1, importance=Importance.LOW, doc="The proxy's port.")
    .define(
        "http.connect.timeout.ms",
        Type.INT,
        default=10_000,
        validator=at_least(1),
        importance=Importance.LOW,
        doc="How long to wait for a connection.",
    )
    .define(
        "http.read.timeout.ms",
        Type.INT,
        default=10_000,
        validator=at_least(1),
        importance=Importance.LOW,
        doc="How long to wait for an answer.",
    )
    .define(
        "max.retries",
        Type.INT,
        default=3,
        importance=Importance.LOW,
        doc="Accepted: the worker itself waits for a registry that is away, however long.",
    )
    .define(
        "retries.wait.ms",
        Type.INT,
        default=1000,
        importance=Importance.LOW,
        doc="Accepted, as max.retries.",
    )
    .define(
        "retries.max.wait.ms",
        Type.INT,
        default=20_000,
        importance=Importance.LOW,
        doc="Accepted, as max.retries.",
    )
)
for _name, (_type, _doc) in _TLS_DOCS.items():
    CONFIG_DEF.define(f"{_SSL}{_name}", _type, default=None, importance=Importance.MEDIUM, doc=_doc)


def open_client(configs: Mapping[str, str]) -> Any:
    """Make a `SchemaRegistryClient`; nothing is asked yet. Properties below `request.header.`
    become headers.

    Raises:
        ConfigError: A property is not acceptable.
    """
    import httpx2  # what confluent_kafka speaks HTTP with
    from confluent_kafka.schema_registry import SchemaRegistryClient

    parsed = CONFIG_DEF.parse(configs)
    headers = with_prefix(configs, _HEADER)
    settings = {
        "url": _urls(parsed),
        "timeout": httpx2.Timeout(
            parsed["http.read.timeout.ms"] / 1000, connect=_connect_seconds(parsed)
        ),
        "max.retries": 0,  # the worker retries, and keeps its consumer alive meanwhile
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
    rest = client._rest_client  # the client has no setting for headers, nor for Java's stores
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
        raise ConfigError(
            "schema.registry.url", "a registry in memory is Java's only; name a real one"
        )
    if not all(map(_is_url, urls)):  # not shown: it may hold a password
        raise ConfigError("schema.registry.url", "must be URLs that begin with http:// or https://")
    if parsed["url.randomize"]:
        random.shuffle(urls)
    return ",".join(urls)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return text.startswith(("http://", "https://")) and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the address, or the port
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
                "sasl.jaas.config", "SASL_INHERIT needs the options username and password"
            )
        return {"basic.auth.user.info": f"{options['username']}:{options['password']}"}
    if source != "USER_INFO":
        raise ConfigError("basic.auth.credentials.source", "must be URL, USER_INFO or SASL_INHERIT")
    old: Password = parsed["schema.registry.basic.auth.user.info"]
    return {"basic.auth.user.info": parsed["basic.auth.user.info"].value or old.value}


def _login(parsed: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    text: Password = parsed["sasl.jaas.config"]
    return parse_jaas(text.value)


def _bearer(parsed: Mapping[str, Any], headers: dict[str, str]) -> dict[str, str]:
    """Settings for tokens that are fetched; a static one is a header like others."""
    source = parsed["bearer.auth.credentials.source"].upper()
    cluster, pool = parsed["bearer.auth.logical.cluster"], parsed["bearer.auth.identity.pool.id"]
    if source == "STATIC_TOKEN":
        token: Password = parsed["bearer.auth.token"]
        if not token.value:
            raise ConfigError("bearer.auth.token", "STATIC_TOKEN needs one")
        shown = {"target-sr-cluster": cluster, "Confluent-Identity-Pool-Id": pool}
        headers |= {
            "Authorization": f"Bearer {token.value}",
            **{name: text for name, text in shown.items() if text},
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
        known = "STATIC_TOKEN, OAUTHBEARER and SASL_OAUTHBEARER_INHERIT"
        raise ConfigError(
            "bearer.auth.credentials.source", f"knows {known}; others are Java classes"
        )
    if not address:
        raise ConfigError(
            "bearer.auth.issuer.endpoint.url", f"{source} needs an address to fetch tokens from"
        )
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
