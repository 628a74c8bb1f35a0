"""Secrets in strings are masked in plain form, in URLs, in JSON, and in Python literals."""

from __future__ import annotations

import io
import json
import logging
from urllib.parse import quote

import pytest

from connect_py.config.config_provider import ConfigResolver
from connect_py.log_context import ContextFilter, TextFormatter
from connect_py.log_output import JsonFormatter
from connect_py.secret_mask import SecretMask

SECRET = 'p@ss"w/rd é'


@pytest.mark.parametrize("text", [SECRET, quote(SECRET, safe=""), json.dumps(SECRET), repr(SECRET)])
def test_a_secret_is_masked_in_every_form_that_texts_have(text: str) -> None:
    mask = SecretMask()
    mask.add([SECRET])
    assert "[hidden]" in mask.apply(f"before {text} after")
    assert mask.apply(f"before {text} after").strip("'\"").startswith("before ")
    assert "w/rd" not in mask.apply(text)
    assert "ss%22w" not in mask.apply(text)


def test_each_long_line_of_a_key_is_masked() -> None:
    mask = SecretMask()
    mask.add(["-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nabc\n"])
    assert mask.apply("got MIIEvQIBADANBgkqhkiG9w0BAQEF of abc") == "got [hidden] of abc"


def test_short_values_are_not_masked_in_unrelated_texts() -> None:
    mask = SecretMask()
    mask.add(["8083", "true", ""])
    assert mask.apply("port 8083 is true") == "port 8083 is true"


def test_passwords_in_urls_are_masked_without_being_known() -> None:
    mask = SecretMask()
    assert (
        mask.apply("GET http://me:s3cr3t@host:80/x?y=1") == "GET http://me:[hidden]@host:80/x?y=1"
    )
    assert mask.apply("jdbc:postgresql://h/db?user=me&password=s3cr3t&a=b") == (
        "jdbc:postgresql://h/db?user=me&password=[hidden]&a=b"
    )
    assert (
        mask.apply("http://host:8083/a@b and http://[::1]:80/")
        == "http://host:8083/a@b and http://[::1]:80/"
    )


def test_a_process_learns_the_secrets_of_its_own_texts_only() -> None:
    mask = SecretMask()
    mask.add(["first-secret", "second-secret"])
    assert mask.found_in(["jdbc:x?p=first-secret", "else"]) == ("first-secret",)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_provided_secrets_appear_in_no_log_line_or_trace(
    formatter: logging.Formatter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SECRET_MASK", 'planted-with-"quotes"')
    resolver = ConfigResolver.of(
        {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}
    )
    resolved = resolver.resolve({"uri": "jdbc:x?password=${env:TEST_SECRET_MASK}"})
    assert "planted" in resolved["uri"]
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    handler.addFilter(ContextFilter())
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError(resolved["uri"])
    except ValueError:
        logger.exception("cannot open %s", resolved["uri"])
    assert "cannot open" in out.getvalue()
    assert "planted" not in out.getvalue()
    assert "quotes" not in out.getvalue()
