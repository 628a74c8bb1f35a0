"""Java's own key stores: files of the types JKS and JCEKS, which no library of Python or C reads
any more."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_JKS: Final = 0xFEEDFEED
_JCEKS: Final = 0xCECECECE
_VERSIONS: Final = (1, 2)  # version 1 has no type before each certificate
# what an entry of the file holds; 3 is a secret key, which is a serialized Java object
_KEY, _CERTIFICATE = (1, 2)
_SALT: Final = b"Mighty Aphrodite"  # of the digest at the end of the file, after the password
_DIGEST_BYTES: Final = 20
# 1.3.6.1.4.1.42.2.17.1.1: SHA-1 as a key stream
_JKS_CIPHER: Final = bytes.fromhex("2b060104012a02110101")
# 1.3.6.1.4.1.42.2.19.1: PBEWithMD5AndTripleDES
_JCEKS_CIPHER: Final = bytes.fromhex("2b060104012a021301")
_ROUNDS_AT_MOST: Final = 5_000_000  # Java's own limit


class KeyStoreError(ValueError):
    """The file is no key store of this password, or holds what cannot be read. The message shows no
    secret."""


def is_java_key_store(data: bytes) -> bool:
    """Whether a file begins as JKS and JCEKS do. PKCS12 stores do not."""
    return data[:4] in (_JKS.to_bytes(4, "big"), _JCEKS.to_bytes(4, "big"))


@dataclass(frozen=True, slots=True)
class ProtectedKey:
    """A private key as the file has it, and its certificates, the key's own first."""

    protected: bytes  # PKCS 8's EncryptedPrivateKeyInfo, in DER, with a cipher of Java
    chain: tuple[bytes, ...]  # X.509 in DER

    def decrypt(self, password: str) -> bytes:
        """Return the key as PKCS 8 in DER.

        Raises:
            KeyStoreError: The password is another one, or the cipher is none that Java writes.
        """
        cipher, parameters, data = _encrypted_key_info(self.protected)
        if cipher == _JKS_CIPHER:
            return _decrypt_jks(data, password)
        if cipher == _JCEKS_CIPHER:
            return _decrypt_jceks(data, parameters, password)
        raise KeyStoreError("the private key is encrypted by an unknown cipher")


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """The entries of a key store, by alias, in the order of the file."""

    certificates: Mapping[str, bytes]  # trusted ones: X.509 in DER
    keys: Mapping[str, ProtectedKey]

    @staticmethod
    def parse(data: bytes, password: str | None) -> JavaKeyStore:
        """Read a file. Without a password, the digest at its end is not checked, as in Java.

        Raises: KeyStoreError: The file is damaged, the password is another one, or the file holds a
            secret key.
        """
        if len(data) < _DIGEST_BYTES:
            raise KeyStoreError("the key store is cut short")
        content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if password is not None:
            expected = hashlib.sha1(
                _utf16(password) + _SALT + content, usedforsecurity=False
            ).digest()
            if not hmac.compare_digest(expected, digest):
                raise KeyStoreError("the key store is damaged, or its password is another one")
        return _parse_entries(_Bytes(content))


class _Bytes:
    """What remains to be read of a file. Lengths that point beyond the end are errors."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise KeyStoreError("the key store is cut short")
        taken, self._at = self._data[self._at : end], end
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        """A text in Java's modified UTF-8. Characters outside of Unicode's first plane come out as
        two surrogates."""
        return (
            self.take(self.number(2)).replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        )

    @property
    def ended(self) -> bool:
        return self._at == len(self._data)


def _parse_entries(file: _Bytes) -> JavaKeyStore:
    magic, version = file.number(4), file.number(4)
    if magic not in (_JKS, _JCEKS) or version not in _VERSIONS:
        raise KeyStoreError("the file is no JKS or JCEKS store")
    certificates: dict[str, bytes] = {}
    keys: dict[str, ProtectedKey] = {}
    try:
        for _ in range(file.number(4)):
            kind, alias = file.number(4), file.text()
            file.take(8)  # when the entry was made
            if kind == _CERTIFICATE:
                certificates[alias] = _certificate(file, version)
            elif kind == _KEY:
                protected = file.take(file.number(4))
                chain = tuple(_certificate(file, version) for _ in range(file.number(4)))
                keys[alias] = ProtectedKey(protected, chain)
            else:
                raise KeyStoreError(f"the entry {alias} is neither a certificate nor a private key")
    except UnicodeDecodeError as error:
        raise KeyStoreError("the key store is damaged: a name is no text") from error
    if not file.ended:
        raise KeyStoreError("the key store is damaged: bytes follow its last entry")
    return JavaKeyStore(certificates, keys)


def _certificate(file: _Bytes, version: int) -> bytes:
    kind = file.text() if version > 1 else "X.509"
    if kind != "X.509":
        raise KeyStoreError(f"the key store holds a certificate of the type {kind}, expected X.509")
    return file.take(file.number(4))


def _encrypted_key_info(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Cipher, parameters of the cipher, and the encrypted key: SEQUENCE {SEQUENCE {OID, any}, OCTET
    STRING}."""
    outer = _Bytes(_der(_Bytes(data), 0x30))
    algorithm = _Bytes(_der(outer, 0x30))
    cipher = _der(algorithm, 0x06)
    parameters = b"" if algorithm.ended else _der(algorithm, None)
    return cipher, parameters, _der(outer, 0x04)


def _der(file: _Bytes, tag: int | None) -> bytes:
    """The content of the next value in DER, of this type if one is named."""
    found, length = file.number(1), file.number(1)
    if tag not in (None, found):
        raise KeyStoreError("the private key is damaged: its cipher is not named")
    if length & 0x80:
        length = file.number(length & 0x7F)
    return file.take(length)


def _decrypt_jks(data: bytes, password: str) -> bytes:
    """SHA-1 as a key stream: each block is the digest of the password and the block before, the
    first one is a salt."""
    secret = _utf16(password)
    block, hidden, digest = (
        data[:_DIGEST_BYTES],
        data[_DIGEST_BYTES:-_DIGEST_BYTES],
        data[-_DIGEST_BYTES:],
    )
    stream = bytearray()
    while len(stream) < len(hidden):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), digest):
        raise KeyStoreError("the private key has another password")
    return key


def _decrypt_jceks(data: bytes, parameters: bytes, password: str) -> bytes:
    """Triple DES in CBC mode, with a key and a first block that come from the password in Java's
    own way."""
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CBC
    from cryptography.hazmat.primitives.padding import PKCS7

    given = _Bytes(parameters)
    salt, rounds = _der(given, 0x04), int.from_bytes(_der(given, 0x02), "big")
    if len(salt) != 8 or not 0 < rounds <= _ROUNDS_AT_MOST or not password.isascii():
        raise KeyStoreError("the private key cannot be decrypted: unusual salt, rounds or password")
    made = b""
    # equal halves, which Java treats in another way, are one case in 4 billion
    for half in (salt[:4], salt[4:]):
        digest = half
        for _ in range(rounds):
            digest = hashlib.md5(digest + password.encode(), usedforsecurity=False).digest()
        made += digest
    cipher = Cipher(TripleDES(made[:24]), CBC(made[24:])).decryptor()
    padding = PKCS7(64).unpadder()
    try:
        return padding.update(cipher.update(data) + cipher.finalize()) + padding.finalize()
    except ValueError as error:  # of the padding: a wrong password leaves noise
        raise KeyStoreError("the private key has another password") from error


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
