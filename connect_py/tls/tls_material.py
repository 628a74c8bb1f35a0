"""Keys and certificates from Java's `ssl.*` settings, as PEM data in memory.

The cryptography package is required only if the settings contain keys or certificates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connect_py.tls.cipher_suites import openssl_ciphers


@dataclass(frozen=True, slots=True, repr=False)
class TlsMaterial:
    """Certificates and unencrypted key for one side of a connection. None means not configured."""

    authorities: str | None = None
    key: str | None = None
    chain: str | None = None
    ciphers: str | None = None  # OpenSSL's names

    @staticmethod
    def of(props: Mapping[str, str]) -> TlsMaterial:
        """Read the settings from inline PEM data and from PEM, JKS, and PKCS12 files.

        Raises:
            ConfigError: A store cannot be read. The message does not contain secrets.
        """
        key, chain = _key_and_chain(props)
        ciphers = openssl_ciphers(_value(props, "ssl.cipher.suites").split(","))
        return TlsMaterial(trusted_authorities(props), key, chain, ciphers)


def trusted_authorities(props: Mapping[str, str]) -> str | None:
    """Return the trusted certificates as PEM data, or None if the settings specify none.

    Raises:
        ConfigError: See `TlsMaterial.of`.
    """
    if _value(props, "ssl.truststore.certificates"):
        from connect_py.tls.key_stores import certificates_of

        return certificates_of(props["ssl.truststore.certificates"], "ssl.truststore.certificates")
    location = _value(props, "ssl.truststore.location")
    if not location:
        return None
    from connect_py.tls.key_stores import trusted_certificates

    return trusted_certificates(
        location, _store_type(props, "truststore"), props.get("ssl.truststore.password")
    )


def _key_and_chain(props: Mapping[str, str]) -> tuple[str | None, str | None]:
    password = props.get("ssl.key.password")
    if _value(props, "ssl.keystore.key"):
        from connect_py.tls.key_stores import certificates_of, private_key_of

        chain = "ssl.keystore.certificate.chain"
        return (
            private_key_of(props["ssl.keystore.key"], password, "ssl.keystore.key"),
            certificates_of(props[chain], chain) if _value(props, chain) else None,
        )
    location = _value(props, "ssl.keystore.location")
    if not location:
        return None, None
    from connect_py.tls.key_stores import key_and_chain

    return key_and_chain(
        location, _store_type(props, "keystore"), props.get("ssl.keystore.password"), password
    )


def _store_type(props: Mapping[str, str], store: str) -> str:
    return (_value(props, f"ssl.{store}.type") or "JKS").upper()


def _value(props: Mapping[str, str], key: str) -> str:
    return (props.get(key) or "").strip()
