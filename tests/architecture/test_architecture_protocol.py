"""Every rule of the commit protocol that code or tests cite by number is in `docs/protocol.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "protocol.md"
CITING = ("connectors", "docs", "tests")
SUFFIXES = (".py", ".java", ".md")
SWITCHES = {
    "Rule": ROOT / "tests" / "property" / "iceberg_protocol_rules.py",
    "Switch": ROOT / "tests" / "property" / "iceberg_protocol_storm.py",
}
# "rule 8", "Rules 7 and 8", "rules 15 to 18", "rules 1, 2 and 3"
CITATION = re.compile(r"\b[Rr]ules?\s+(?:# )?(\d+(?:(?:, | and | or | to |-|/)(?:rule )?\d+)*)")
# pages and numbered cases that are not in the repository
FOREIGN = re.compile(
    r"\b(spec/|sink-protocol|design\.md|design §|style\.md|test_cases?_\d)|\"\"\"Cases? \d"
)


def _rules() -> dict[int, str]:
    """Return the rules by number."""
    parts = re.split(r"^### Rule (\d+)$", PAGE.read_text(), flags=re.MULTILINE)
    return {
        int(number): text.partition("\n## ")[0]
        for number, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def _sources() -> Iterator[Path]:
    for folder in CITING:
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES)


def _numbers(citation: str) -> Iterator[int]:
    for part in re.split(r", | and | or ", citation):
        first, *last = (int(number) for number in re.findall(r"\d+", part))
        yield from range(first, (last or [first])[0] + 1)


def _switches() -> dict[str, int]:
    """The number of the rule that each switch turns off, by the switch's name."""
    found: dict[str, int] = {}
    for name, path in SWITCHES.items():
        body = re.search(
            rf"^class {name}\(Enum\):\n((?:    .*\n|\n)+)", path.read_text(), re.MULTILINE
        )
        assert body is not None, f"{path} has no class {name}"
        found |= {
            switch: int(n)
            for switch, n in re.findall(r'^    ([A-Z_]+) = "(\d+)', body[1], re.MULTILINE)
        }
        members = re.findall(r"^    [A-Z_]+ = ", body[1], re.MULTILINE)
        assert len(members) == len(re.findall(r'^    [A-Z_]+ = "\d+', body[1], re.MULTILINE)), (
            "a switch has no rule"
        )
    return found


def test_rules_are_numbered_without_a_gap() -> None:
    assert sorted(_rules()) == list(range(1, len(_rules()) + 1))


def test_the_list_of_rules_has_the_first_sentence_of_each() -> None:
    listed = re.findall(r"^\| \[(\d+)\]\(#rule-\1\) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    first = {
        number: re.match(r"\s*\*\*(.*?)\.?\*\*", text, re.DOTALL)
        for number, text in _rules().items()
    }
    assert {int(number): sentence for number, sentence in listed} == {
        number: " ".join(found[1].split()) for number, found in first.items() if found
    }


def test_every_rule_that_is_cited_stands_in_the_protocol() -> None:
    rules = _rules()
    cited = {
        f"{path.relative_to(ROOT)}: rule {number}": number
        for path in _sources()
        for citation in CITATION.findall(path.read_text())
        for number in _numbers(citation)
    }
    assert len(cited) > 20
    assert [place for place, number in cited.items() if number not in rules] == []


def test_every_rule_names_its_switches_or_its_test() -> None:
    switches = _switches()
    for number, text in _rules().items():
        if text.lstrip().startswith("**Retired"):
            assert number not in switches.values(), f"rule {number} is retired but has a switch"
            continue
        named = re.findall(r"^(?:Switch|Switches|Test): (.*?)\.$", text, re.MULTILINE | re.DOTALL)
        assert len(named) == 1, f"rule {number} says in one sentence what shows it"
        shown = set(re.findall(r"`(\w+)`", named[0]))
        tests = {name for name in shown if name.startswith("test_")}
        assert shown - tests == {name for name, rule in switches.items() if rule == number}, (
            f"rule {number}"
        )
        assert shown, f"rule {number}"


@pytest.mark.parametrize(
    "folder", ["connect_py", "connectors", "rest", "transforms", "tests", "docs"]
)
def test_no_file_cites_a_page_outside_the_repository(folder: str) -> None:
    citing = [
        path
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES and path != Path(__file__)
    ]
    assert [
        str(path.relative_to(ROOT)) for path in citing if FOREIGN.search(path.read_text())
    ] == []


def test_citations_are_read_in_all_their_forms() -> None:
    text = "rule 8, Rules 7 and 8, rules 15 to 17, rules 1, 2 and 3 (rule\n26), rule\n    # 4"
    assert [list(_numbers(found)) for found in CITATION.findall(text)] == [
        [8],
        [7, 8],
        [15, 16, 17],
        [1, 2, 3],
        [26],
        [4],
    ]
