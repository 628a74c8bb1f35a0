"""Java's regular expressions on Python's engine."""

from __future__ import annotations

import pytest

from connect_py.java.errors import IllegalArgumentError, IndexOutOfBoundsError
from connect_py.java.patterns import JavaPattern, Replacement
from connect_py.java.regex import JavaRegexError


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("topic", "topic", "topicA"),
        (r"(?<p>a)\k<p>", "aa", "ab"),
        (r"\Qa.b\E.", "a.bx", "axbx"),
        (r"\Qa.b", "a.b", "axb"),
        (r"\p{Alpha}+\P{Digit}", "ab-", "ab1"),
        (r"\p{Upper}a", "Xa", "xa"),
        ("[a-z&&[^b]]+", "acd", "abc"),
        ("[a-c[x-z]]+", "axcz", "axd"),
        ("[^a[b]]", "c", "b"),
        (r"[\w&&[^\d]]+", "a_b", "a1"),
        ("[a&&b]?c", "c", "ac"),
        (r"[\Q[]\E]+", "[]", "a"),
        ("[]a]+", "]a", "b"),
        ("[a-]+", "a-", "b"),
        ("[[a]-z]+", "a-z", "b"),
        (r"[a\-z]+", "a-z", "b"),
        ("a++b", "aab", "aa"),
        ("(?>a|ab)c", "ac", "abc"),
        ("(?i)ORDERS", "orders", "order"),
        ("(?i:A)b", "ab", "aB"),
        ("(?i)a(?-i:B)", "AB", "Ab"),
        ("(?s-i:a.)", "a\n", "A\n"),
        (r"a\z", "a", "b"),
        (r"\x{61}\x62\u0063\0144\e?", "abcd", "abce"),
        (r"a(?=b)b(?<=b)(?!c)", "ab", "a"),
        (r"\d+", "12", "١٢"),
        (r"a\h\R", "a \r\n", "a\n"),
        (r"\-\_\.", "-_.", "-_x"),
    ],
)
def test_pattern_matches_whole_texts_as_java_does(pattern: str, matching: str, other: str) -> None:
    compiled = JavaPattern(pattern)
    assert compiled.matches(matching)
    assert not compiled.matches(other)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[a",
        "a\\",
        r"\G",
        r"\p{IsGreek}",
        "a(?i)b",
        r"(?<=a+)b",
        r"\k<x>",
        "(?u)a",
        "(?-i)a",
        "*",
    ],
)
def test_what_is_wrong_or_has_no_form_is_refused(pattern: str) -> None:
    with pytest.raises(JavaRegexError):
        JavaPattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "replacement", "made"),
    [
        ("(?<p>topic)(.*)", "${p}_$2", "topic_A"),
        ("(.*)", r"\$1-$1", "$1-topicA"),
        ("(t)(.*)", "$12", "t2"),
        ("(x)?.*", "<$1>", "<>"),
        ("topicA", "", ""),
        (".*", "a\\\\b", "a\\b"),
        ("topic|topicA", "x", "xA"),
    ],
)
def test_first_match_of_a_java_pattern_is_replaced(
    pattern: str, replacement: str, made: str
) -> None:
    assert JavaPattern(pattern).replace_first("topicA", Replacement(replacement)) == made


@pytest.mark.parametrize(
    ("replacement", "error", "message"),
    [
        ("$2", IndexOutOfBoundsError, "No group 2"),
        ("${x}", IllegalArgumentError, "No group with name {x}"),
        ("$", IllegalArgumentError, "group index is missing"),
        ("$x", IllegalArgumentError, "Illegal group reference"),
        ("\\", IllegalArgumentError, "character to be escaped is missing"),
    ],
)
def test_replacement_that_names_no_group_fails_when_it_is_used(
    replacement: str, error: type[Exception], message: str
) -> None:
    pattern = JavaPattern("(topic).*")
    assert pattern.replace_first("other", Replacement(replacement)) == "other"
    with pytest.raises(error, match=message.replace("{", r"\{")):
        pattern.replace_first("topicA", Replacement(replacement))
