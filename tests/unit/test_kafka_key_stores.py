"""Key material in Java's formats, converted to PEM data for the client library."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificates
from rest_certificates import Authority, jks_store, jks_trust_store, pkcs12_store

from connect_py.api.errors import ConfigError
from connect_py.kafka.client_config import translate
from connect_py.tls.key_stores import key_and_chain

PASSWORD = "store-password"
AUTHORITY = Authority.make()
KEY, CHAIN = AUTHORITY.issue("client")


def encrypted_key(form: PrivateFormat) -> str:
    key = load_pem_private_key(KEY.encode(), None)
    return key.private_bytes(
        Encoding.PEM, form, BestAvailableEncryption(PASSWORD.encode())
    ).decode()


def subjects(pem: object) -> list[str]:
    return [each.subject.rfc4514_string() for each in load_pem_x509_certificates(str(pem).encode())]


@pytest.mark.parametrize(
    ("made", "named"), [("JKS", "JKS"), ("PKCS12", "PKCS12"), ("PKCS12", "JKS"), ("JKS", "PKCS12")]
)
def test_key_store_is_read_by_content_despite_its_declared_type(
    tmp_path: Path, made: str, named: str
) -> None:
    file = tmp_path / "store"
    file.write_bytes((jks_store if made == "JKS" else pkcs12_store)(KEY, CHAIN, PASSWORD))
    settings = translate(
        {
            "ssl.keystore.type": named,
            "ssl.keystore.location": str(file),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
        },
        "producer",
    )
    assert settings["ssl.key.pem"] == KEY
    assert subjects(settings["ssl.certificate.pem"]) == ["CN=client", "CN=test authority"]
    assert "ssl.key.password" not in settings


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_encrypted_pem_key_is_read_with_any_line_breaks(form: PrivateFormat) -> None:
    key = encrypted_key(form)
    shown = key if form is PrivateFormat.TraditionalOpenSSL else " ".join(key.split("\n"))
    settings = translate(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": shown,
            "ssl.key.password": PASSWORD,
            "ssl.keystore.certificate.chain": "".join(CHAIN.split("\n")),
        },
        "consumer",
    )
    assert settings["ssl.key.pem"] == KEY
    assert subjects(settings["ssl.certificate.pem"]) == ["CN=client", "CN=test authority"]


def test_one_pem_file_may_hold_key_and_certificates(tmp_path: Path) -> None:
    file = tmp_path / "own.pem"
    file.write_text(f"# comment\n{encrypted_key(PrivateFormat.PKCS8)}\n{CHAIN}")
    key, chain = key_and_chain(str(file), "PEM", None, PASSWORD)
    assert key == KEY
    assert len(subjects(chain)) == 2


@pytest.mark.parametrize("password", [PASSWORD, None])
def test_jks_trust_store_is_read_with_or_without_its_password(
    tmp_path: Path, password: str | None
) -> None:
    file = tmp_path / "trust.jks"
    file.write_bytes(jks_trust_store(AUTHORITY.certificate_pem, PASSWORD))
    props = {"ssl.truststore.location": str(file)}
    if password is not None:
        props["ssl.truststore.password"] = password
    assert translate(props, "admin")["ssl.ca.pem"] == AUTHORITY.certificate_pem


@pytest.mark.parametrize(
    ("props", "why"),
    [
        (
            {"ssl.truststore.certificates": "nonsense"},
            "ssl.truststore.certificates: contains no certificate",
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/no/such/file"},
            "cannot be read",
        ),
        ({"ssl.keystore.key": CHAIN}, "ssl.keystore.key: contains no private key"),
        (
            {"ssl.keystore.key": encrypted_key(PrivateFormat.PKCS8), "ssl.key.password": "no"},
            "ssl.key.password",
        ),
    ],
)
def test_unreadable_key_material_is_refused_before_the_library_sees_it(
    props: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        translate(props, "consumer")


@pytest.mark.parametrize("store", [jks_store, pkcs12_store])
def test_a_wrong_password_is_said_without_showing_it(tmp_path: Path, store: object) -> None:
    file = tmp_path / "store"
    file.write_bytes(store(KEY, CHAIN, PASSWORD))  # type: ignore[operator]
    with pytest.raises(ConfigError, match="store, or the password is wrong") as refused:
        translate(
            {"ssl.keystore.location": str(file), "ssl.keystore.password": "wr0ng"}, "consumer"
        )
    assert "wr0ng" not in str(refused.value)
