"""Key stores of the types JKS and JCEKS from Java's keytool."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificates
from rest_certificates import Authority, jks_store, jks_trust_store

from connect_py.tls.java_key_store import JavaKeyStore, KeyStoreError, is_java_key_store

PASSWORD = "store-password"
AUTHORITY = Authority.make()
KEY, CHAIN = AUTHORITY.issue("client")
PKCS8 = load_pem_private_key(KEY.encode(), None).private_bytes(
    Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
)
CHAIN_DER = tuple(
    each.public_bytes(Encoding.DER) for each in load_pem_x509_certificates(CHAIN.encode())
)
KINDS = ("JKS", "JCEKS")


@cache
def keys(kind: str) -> bytes:
    return jks_store(KEY, CHAIN, PASSWORD, kind)


@cache
def trusted(kind: str) -> bytes:
    return jks_trust_store(AUTHORITY.certificate_pem, PASSWORD, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_private_key_stored_by_keytool_is_read_with_its_chain(kind: str) -> None:
    assert is_java_key_store(keys(kind))
    store = JavaKeyStore.parse(keys(kind), PASSWORD)
    assert store.certificates == {}
    (entry,) = store.keys.values()
    assert entry.decrypt(PASSWORD) == PKCS8
    assert entry.chain == CHAIN_DER


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("password", [PASSWORD, None])
def test_certificates_are_read_with_and_without_the_password(
    kind: str, password: str | None
) -> None:
    store = JavaKeyStore.parse(trusted(kind), password)
    assert store.certificates == {"authority": CHAIN_DER[1]}
    assert store.keys == {}


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_password_is_refused_for_store_and_for_key(kind: str) -> None:
    with pytest.raises(KeyStoreError, match="the password is wrong"):
        JavaKeyStore.parse(keys(kind), "wr0ng")
    (entry,) = JavaKeyStore.parse(keys(kind), None).keys.values()
    with pytest.raises(KeyStoreError, match="password of the private key is wrong"):
        entry.decrypt("wr0ng")


def cut(data: bytes, at: int) -> bytes:
    return data[:at]


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", [cut, changed])
def test_a_damaged_store_is_refused_wherever_the_damage_is(
    kind: str, damage: Callable[[bytes, int], bytes]
) -> None:
    for data in (keys(kind), trusted(kind)):
        for at in range(len(data)):
            with pytest.raises(KeyStoreError):
                JavaKeyStore.parse(damage(data, at), PASSWORD)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", [cut, changed])
def test_a_damaged_store_is_never_another_error_without_the_password(
    kind: str, damage: Callable[[bytes, int], bytes]
) -> None:
    """Without the password, only the structure reveals damage. No length may allocate much
    memory.
    """
    step = {"JKS": 1, "JCEKS": 293}[kind]  # JCEKS: 200,000 rounds of a digest for each key
    for at in range(0, len(keys(kind)), step):
        try:
            for entry in JavaKeyStore.parse(damage(keys(kind), at), None).keys.values():
                entry.decrypt(PASSWORD)
        except KeyStoreError:
            continue


def test_what_is_no_java_store_is_told_apart() -> None:
    assert not is_java_key_store(b"0\x82\x01\x02")
    with pytest.raises(KeyStoreError, match="not a JKS or JCEKS"):
        JavaKeyStore.parse(bytes(100), None)
