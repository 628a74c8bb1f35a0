"""Translates the Java client's login and TLS settings to librdkafka's.

Private keys are passed as PEM data in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeAlias

from connect_py.api.config import with_prefix
from connect_py.api.errors import ConfigError
from connect_py.java.jaas_config import parse_jaas
from connect_py.tls.tls_material import TlsMaterial, trusted_authorities

Settings: TypeAlias = dict[str, object]

log = logging.getLogger(__name__)

SECURITY_KEYS: Final = frozenset(
    [
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "ssl.cipher.suites",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
    ]
)
"""Keys that `add_security` reads. No other translation uses them."""

_UNSECURED_CLAIM: Final = "unsecuredLoginStringClaim_"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")
_INSTEAD: Final = (
    "is supported only by Java clients; use OAUTHBEARER with "
    "sasl.oauthbearer.token.endpoint.url, SCRAM-SHA-512, SCRAM-SHA-256, or PLAIN, depending on "
    "the cluster"
)
_DEFAULT_CLASSES: Final = {
    "sasl.client.callback.handler.class": ("OAuthBearerSaslClientCallbackHandler",),
    "sasl.login.class": ("DefaultLogin", "OAuthBearerRefreshingLogin"),
    "sasl.oauthbearer.jwt.retriever.class": (
        "DefaultJwtRetriever",
        "ClientCredentialsJwtRetriever",
        "JwtBearerJwtRetriever",
    ),
}


def add_security(props: Mapping[str, str], result: Settings) -> None:
    """Translate the settings in `SECURITY_KEYS` to librdkafka's and add them to `result`.

    Raises:
        ConfigError: A setting is not supported, or key material cannot be read. The message
            contains no secrets.
    """
    refuse_logins_of_java(props)
    _add_login(props, result)
    _add_tls(props, result)
    if _stripped(props, "security.protocol").upper().startswith("SASL_") and not _stripped(
        props, "sasl.mechanism"
    ):
        raise ConfigError("sasl.mechanism", f"GSSAPI (Kerberos), the default, {_INSTEAD}")


def refuse_logins_of_java(props: Mapping[str, str]) -> None:
    """Check that the login settings do not require Java.

    Raises:
        ConfigError: The mechanism or a class name is not supported. The message names alternatives.
    """
    mechanism = _stripped(props, "sasl.mechanism").upper()
    logs_in = _stripped(props, "security.protocol").upper().startswith("SASL_")
    # Java's default, set explicitly although no login is configured
    default = mechanism == "GSSAPI" and not logs_in
    if mechanism and mechanism not in _MECHANISMS and not default:
        raise ConfigError("sasl.mechanism", f"{mechanism} {_INSTEAD}")
    jaas_config = props.get("sasl.jaas.config")
    module = parse_jaas(jaas_config)[0] if jaas_config and jaas_config.strip() else ""
    if module and module.rpartition(".")[2] not in _LOGIN_MODULES:
        raise ConfigError("sasl.jaas.config", f"the login module {module} {_INSTEAD}")
    handler = _stripped(props, "sasl.login.callback.handler.class")
    if handler and not handler.rpartition(".")[2].startswith("OAuthBearer"):
        raise ConfigError("sasl.login.callback.handler.class", f"{handler} {_INSTEAD}")
    for key, classes in _DEFAULT_CLASSES.items():
        name = _stripped(props, key)
        if name and name.rpartition(".")[2] not in classes:
            raise ConfigError(key, f"{name} {_INSTEAD}")


def _stripped(props: Mapping[str, str], key: str) -> str:
    return (props.get(key) or "").strip()


def _add_login(props: Mapping[str, str], result: Settings) -> None:
    handler = _stripped(props, "sasl.login.callback.handler.class")
    jaas_config = props.get("sasl.jaas.config")
    module, options = parse_jaas(jaas_config) if jaas_config and jaas_config.strip() else ("", {})
    simple = module.rpartition(".")[2]
    if simple in ("PlainLoginModule", "ScramLoginModule"):
        for option, key in (("username", "sasl.username"), ("password", "sasl.password")):
            if option not in options:
                raise ConfigError("sasl.jaas.config", f"{simple} needs the option {option}")
            result[key] = options[option]
    elif simple or handler or _stripped(props, "sasl.mechanism").upper() == "OAUTHBEARER":
        _add_oauth(props, options, result)


def _add_oauth(props: Mapping[str, str], options: Mapping[str, str], result: Settings) -> None:
    """Configure tokens from an endpoint, or Java's unsecured tokens for testing."""
    claims = with_prefix(options, _UNSECURED_CLAIM)
    if claims and not _stripped(props, "sasl.oauthbearer.token.endpoint.url"):
        log.warning(
            "OAUTHBEARER tokens are not signed: use the unsecuredLogin options only for testing"
        )
        result["enable.sasl.oauthbearer.unsecure.jwt"] = True
        result["sasl.oauthbearer.config"] = f"principal={claims.get('sub', '')}"
        return
    result["sasl.oauthbearer.method"] = "oidc"
    names = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
    result.update(
        {
            f"sasl.oauthbearer.{name}": options[option]
            for option, name in names.items()
            if option in options
        }
    )
    extensions = with_prefix(options, "extension_")
    if extensions:
        result["sasl.oauthbearer.extensions"] = ",".join(f"{k}={v}" for k, v in extensions.items())
    if _stripped(props, "sasl.oauthbearer.jwt.retriever.class").endswith("JwtBearerJwtRetriever"):
        result["sasl.oauthbearer.grant.type"] = _JWT_BEARER
    template = _stripped(props, "sasl.oauthbearer.assertion.template.file")
    if template:
        result["sasl.oauthbearer.assertion.jwt.template.file"] = template
    trust = {key: value for key, value in options.items() if key.startswith("ssl.truststore.")}
    authorities = trusted_authorities(trust or props)
    if authorities is not None:
        # Java's clients use the same certificate authorities for the endpoint
        result["https.ca.pem"] = authorities


def _add_tls(props: Mapping[str, str], result: Settings) -> None:
    """Pass certificates and keys as PEM data in memory.

    PEM data is the only form in which librdkafka supports all of Java's options.
    """
    material = TlsMaterial.of(props)
    settings = {
        "ssl.ca.pem": material.authorities,
        "ssl.key.pem": material.key,
        "ssl.certificate.pem": material.chain,
        "ssl.cipher.suites": material.ciphers,
    }
    result.update({key: value for key, value in settings.items() if value is not None})
    if material.key is None and props.get("ssl.key.password"):
        # password for a key that is specified in librdkafka's own settings
        result["ssl.key.password"] = props["ssl.key.password"]
