"""Parser for Java's JKS and JCEKS key stores, which Python and C libraries no longer support."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_JKS: Final = 0xFEEDFEED
_JCEKS: Final = 0xCECECECE
_VERSIONS: Final = (1, 2)  # version 1 has no type field before each certificate
# entry types; type 3 is a secret key, stored as a serialized Java object
_KEY, _CERTIFICATE = (1, 2)
_SALT: Final = b"Mighty Aphrodite"  # hashed after the password to compute the file's digest
_DIGEST_BYTES: Final = 20
# 1.3.6.1.4.1.42.2.17.1.1: XOR with a key stream of SHA-1 digests
_JKS_CIPHER: Final = bytes.fromhex("2b060104012a02110101")
# 1.3.6.1.4.1.42.2.19.1: PBEWithMD5AndTripleDES
_JCEKS_CIPHER: Final = bytes.fromhex("2b060104012a021301")
_MAX_ITERATIONS: Final = 5_000_000  # the same limit as in Java


class KeyStoreError(ValueError):
    """The file is not a key store, has a different password, or cannot be read.

    The message does not contain secrets.
    """


def is_java_key_store(data: bytes) -> bool:
    """Return True if a file starts like a JKS or JCEKS store and is therefore not PKCS12."""
    return data[:4] in (_JKS.to_bytes(4, "big"), _JCEKS.to_bytes(4, "big"))


@dataclass(frozen=True, slots=True)
class ProtectedKey:
    """An encrypted private key and its certificate chain, starting with the key's certificate."""

    protected: bytes  # PKCS #8 EncryptedPrivateKeyInfo in DER, with a Java-specific cipher
    chain: tuple[bytes, ...]  # X.509 in DER

    def decrypt(self, password: str) -> bytes:
        """Return the key as PKCS #8 in DER.

        Raises:
            KeyStoreError: The password is wrong, or the cipher is unknown.
        """
        cipher, parameters, data = _encrypted_key_info(self.protected)
        if cipher == _JKS_CIPHER:
            return _decrypt_jks(data, password)
        if cipher == _JCEKS_CIPHER:
            return _decrypt_jceks(data, parameters, password)
        raise KeyStoreError("the private key is encrypted with an unknown cipher")


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """Entries in a key store, keyed by alias, in file order."""

    certificates: Mapping[str, bytes]  # trusted X.509 certificates in DER
    keys: Mapping[str, ProtectedKey]

    @staticmethod
    def parse(data: bytes, password: str | None) -> JavaKeyStore:
        """Parse a file. As in Java, the digest at its end is not verified without a password.

        Raises:
            KeyStoreError: The file is damaged, the password is wrong, or the file contains a secret
                key.
        """
        if len(data) < _DIGEST_BYTES:
            raise KeyStoreError("the key store is truncated")
        content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if password is not None:
            expected = hashlib.sha1(
                _utf16(password) + _SALT + content, usedforsecurity=False
            ).digest()
            if not hmac.compare_digest(expected, digest):
                raise KeyStoreError("the key store is damaged, or the password is wrong")
        return _parse_entries(_Reader(content))


class _Reader:
    """Reads fields from a file and raises KeyStoreError if a field exceeds the file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise KeyStoreError("the key store is truncated")
        data, self._at = self._data[self._at : end], end
        return data

    def number(self, size: int) -> int:
        return int.from_bytes(self.read(size), "big")

    def string(self) -> str:
        """Read a string in Java's modified UTF-8.

        Supplementary characters are returned as surrogate pairs.
        """
        return (
            self.read(self.number(2)).replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        )

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)


def _parse_entries(file: _Reader) -> JavaKeyStore:
    magic, version = file.number(4), file.number(4)
    if magic not in (_JKS, _JCEKS) or version not in _VERSIONS:
        raise KeyStoreError("the file is not a JKS or JCEKS store")
    certificates: dict[str, bytes] = {}
    keys: dict[str, ProtectedKey] = {}
    try:
        for _ in range(file.number(4)):
            kind, alias = file.number(4), file.string()
            file.read(8)  # creation time of the entry
            if kind == _CERTIFICATE:
                certificates[alias] = _certificate(file, version)
            elif kind == _KEY:
                protected = file.read(file.number(4))
                chain = tuple(_certificate(file, version) for _ in range(file.number(4)))
                keys[alias] = ProtectedKey(protected, chain)
            else:
                raise KeyStoreError(f"the entry {alias} is neither a certificate nor a private key")
    except UnicodeDecodeError as error:
        raise KeyStoreError("the key store is damaged: a name is not valid UTF-8") from error
    if not file.at_end:
        raise KeyStoreError("the key store is damaged: bytes follow its last entry")
    return JavaKeyStore(certificates, keys)


def _certificate(file: _Reader, version: int) -> bytes:
    kind = file.string() if version > 1 else "X.509"
    if kind != "X.509":
        raise KeyStoreError(f"the key store contains a certificate of type {kind}, expected X.509")
    return file.read(file.number(4))


def _encrypted_key_info(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the cipher, its parameters, and the encrypted key.

    The structure is SEQUENCE {SEQUENCE {OID, any}, OCTET STRING}.
    """
    outer = _Reader(_der(_Reader(data), 0x30))
    algorithm = _Reader(_der(outer, 0x30))
    cipher = _der(algorithm, 0x06)
    parameters = b"" if algorithm.at_end else _der(algorithm, None)
    return cipher, parameters, _der(outer, 0x04)


def _der(file: _Reader, tag: int | None) -> bytes:
    """Return the content of the next DER value, which must have this tag unless the tag is None."""
    actual_tag, length = file.number(1), file.number(1)
    if tag not in (None, actual_tag):
        raise KeyStoreError("the private key is damaged: its cipher is missing")
    if length & 0x80:
        length = file.number(length & 0x7F)
    return file.read(length)


def _decrypt_jks(data: bytes, password: str) -> bytes:
    """Decrypt a key with a key stream of SHA-1 digests.

    Each block of the key stream is the digest of the password and the previous block. The first
    block is a salt.
    """
    secret = _utf16(password)
    block, encrypted, digest = (
        data[:_DIGEST_BYTES],
        data[_DIGEST_BYTES:-_DIGEST_BYTES],
        data[-_DIGEST_BYTES:],
    )
    stream = bytearray()
    while len(stream) < len(encrypted):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), digest):
        raise KeyStoreError("the password of the private key is wrong")
    return key


def _decrypt_jceks(data: bytes, parameters: bytes, password: str) -> bytes:
    """Decrypt a key with triple DES in CBC mode, with Java's derivation of key and IV."""
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CBC
    from cryptography.hazmat.primitives.padding import PKCS7

    reader = _Reader(parameters)
    salt, rounds = _der(reader, 0x04), int.from_bytes(_der(reader, 0x02), "big")
    if len(salt) != 8 or not 0 < rounds <= _MAX_ITERATIONS or not password.isascii():
        raise KeyStoreError(
            "the private key cannot be decrypted: unexpected salt, iteration count, or password"
        )
    derived = b""
    # Java handles a salt with equal halves differently, which affects one salt in 4 billion
    for half in (salt[:4], salt[4:]):
        digest = half
        for _ in range(rounds):
            digest = hashlib.md5(digest + password.encode(), usedforsecurity=False).digest()
        derived += digest
    cipher = Cipher(TripleDES(derived[:24]), CBC(derived[24:])).decryptor()
    padding = PKCS7(64).unpadder()
    try:
        return padding.update(cipher.update(data) + cipher.finalize()) + padding.finalize()
    except ValueError as error:  # invalid padding, which indicates a wrong password
        raise KeyStoreError("the password of the private key is wrong") from error


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
