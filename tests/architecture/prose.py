"""Count phrases that are grammatical, but not idiomatic technical English.

    python tests/architecture/prose.py                counts per pattern, and the files with most
    python tests/architecture/prose.py "is no X"      every match of a pattern
    python tests/architecture/prose.py --names        participles and pronouns as names of values
    python tests/architecture/prose.py --docstrings   docstrings with an unidiomatic first word
    python tests/architecture/prose.py --check        fail if a count exceeds prose_counts.json
    python tests/architecture/prose.py --update       write the current counts to that file

A match is a hint, not an error: rewrite the sentence instead of swapping the word. `make lint` runs
the check, so that the counts never rise.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
COUNTS = Path(__file__).with_name("prose_counts.json")
PRODUCT = ("connect_py", "connectors", "transforms", "rest", "native", "docker", "tools")
NOT_PROSE = ("tests/architecture/prose.py", "tests/unit/test_architecture_prose.py")

# regular expression, and what an English-speaking engineer would write instead
PATTERNS: Mapping[str, tuple[str, str]] = {
    "is no X": (
        r"\b(is|are|was|were|be) no (?!longer|more than|less|such|matter|way|need|op\b)[a-z]",
        "is not a X; X is not valid; there is no X",
    ),
    "says/tells": (
        r"\b(say|says|said|tell|tells|told|hear|hears|heard)\b",
        "report, return, log, specify, show, indicate; receive",
    ),
    "what-clause noun": (
        r"(?:^|[ (])[Ww]hat (is|are|was|were|has|had|it|they|a|an|the|one|of|came|comes|goes|"
        r"belongs|stays|remains|follows|happens|stands|must|may|can|does|do|makes|made|needs|"
        r"each|others?|its|their|our|we)\b",
        "the noun: the remaining rows, the table's columns, the reason",
    ),
    "goes on/anew": (
        r"\b(go|goes|went|going) on\b|\banew\b|\bonce more\b|\ball the same\b",
        "continue, resume; again; nevertheless",
    ),
    "stands/lies": (
        r"\b(stands?|stood|lies) (in|at|on|above|below|beside|behind|before|there|where|as|"
        r"for)\b",
        "is stored in; is at offset; is listed",
    ),
    "is there": (
        r"\b(is|are|was|were|be|been) there\b(?! (a|an|any|no)\b)",
        "exists; is available; is present",
    ),
    "come/comes": (
        r"\b(comes?|came) (from|with|in|into|to|again|back|late|too|between|first|last|after|"
        r"before|later|together|once)\b",
        "arrives, is delivered, is read, follows, contains",
    ),
    "of its own / by itself": (
        r"\bof (its|their|our|his) own\b|\bby (itself|themselves)\b",
        "separate, dedicated, its own; automatically",
    ),
    "life/lives": (
        r"\b(life|lives|alive|living|dead|dies|die|died)\b(?! letter)(?!-letter)",
        "session, epoch, instance, process; ends, fails, exits",
    ),
    "of before/of now": (
        r"\bof (before|now|then|today)\b",
        "previous, current",
    ),
    "so that/so it": (
        r"(?:^|[,;:] )so (it|that|this|they|a|an|the|each|no|every)\b",
        "sparingly: 'therefore', or split the sentence",
    ),
    "but for": (
        r"\bbut for\b|\ball but\b|\bfor want of\b|\bin vain\b|\bfor ever\b|\bfor good\b|"
        r"\bwhoever\b|\bwherever\b",
        "except; except for; without; without limit; permanently",
    ),
    "makes/made": (
        r"\b(make|makes|made|making) (of|out of|it|them|a|an|the|sure)\b(?! sure)",
        "create, build, construct, produce, write",
    ),
    "takes": (
        r"\b(takes?|took|taken) (over|up|back|part|in|place of|its|their|all|what|a|an|the)\b",
        "accept, read, use, receive; adopt; accepts",
    ),
    "keeps": (
        r"\b(keeps?|kept) (what|it|them|its|their|a|an|the|all|each|for|until|in)\b",
        "store, retain, hold, cache",
    ),
    "mend/letters/lent/rights": (
        r"\bmend(s|ed|ing)?\b|(?<!dead )(?<!dead-)\bletters\b|\blent\b|\blends?\b|\brights\b|"
        r"\bbelow(?= (it|them|us|him)\b)",
        "fix; records; vended; permissions, ACLs",
    ),
    "texts": (
        r"\btexts?\b",
        "string, message, content",
    ),
    "beside": (
        r"\bbeside\b",
        "next to, alongside, in addition to",
    ),
    "may be/perhaps": (
        r"\bperhaps\b|\bas it is\b|\bas they are\b|\bas well as\b",
        "possibly; unchanged",
    ),
    "those that/that of": (
        r"\b(those|that) (that|which|of|who|in|for|with)\b",
        "the noun again",
    ),
    "such": (
        r"\bno such\b|\bsuch as\b|\bas such\b|\bsuch (a|an)\b|\bof such\b",
        "fine in moderation",
    ),
    "one X": (
        r"\bone (that|which|whose|of (its|their|these|those))\b|\bones\b",
        "the noun",
    ),
}
MODERATE = {"such"}  # counted, but not in the totals
NAMES = frozenset(
    [
        "found",
        "made",
        "known",
        "wanted",
        "kept",
        "given",
        "asked",
        "taken",
        "left",
        "told",
        "gone",
        "there",
        "held",
        "seen",
        "meant",
        "done",
        "lent",
        "shown",
        "named",
        "said",
        "asks",
        "says",
        "place",
        "places",
        "life",
        "lives",
        "news",
        "own",
        "others",
        "what",
        "who",
        "whom",
        "when",
        "lately",
        "anew",
        "moved",
        "came",
        "went",
        "begun",
        "told",
        "tried",
        "judged",
    ]
)
BAD_START = re.compile(
    r"^(What|Whether|How|Where|Why|Which|Whose|When|Of|As|Those|That|So|Is|Are|May|Must|"
    r"Nothing|None|To|For|Not|With|Without|By|In|On|At|From)\b"
)
_NOT_PROSE_OF_PAGE = re.compile(
    r"^```.*?^```$|^    .*?$|`[^`\n]+`|\]\([^)\s]+\)", re.DOTALL | re.MULTILINE
)
_COMPILED = {name: re.compile(pattern) for name, (pattern, _) in PATTERNS.items()}


@dataclass(slots=True)
class Report:
    """Matches as `(location, excerpt)` by area and pattern. Areas: code, pages, tests."""

    phrases: dict[str, Counter[str]] = field(default_factory=dict)
    by_file: Counter[str] = field(default_factory=Counter)
    matches: dict[str, list[str]] = field(default_factory=dict)  # by pattern, and other checks

    def totals(self) -> dict[str, int]:
        """Return the counts that must not rise."""
        return {
            **{
                area: sum(n for name, n in counts.items() if name not in MODERATE)
                for area, counts in sorted(self.phrases.items())
            },
            "names": len(self.matches["names"]),
            "docstrings": len(self.matches["docstrings"]),
        }


def area_of(name: str) -> str | None:
    """Return the area of a file of the repository, or None if it is not read."""
    top = name.split("/")[0]
    if name in NOT_PROSE:
        return None
    if name.endswith(".md"):
        return None if name.startswith(("tests/", "docs/reference/")) else "pages"
    if name.endswith((".py", ".java", ".rs", ".js")):
        return "code" if top in PRODUCT else "tests" if top == "tests" else None
    return None


def report(root: Path, names: Iterable[str]) -> Report:
    """Read the files and return all matches. Names and docstrings are those of the product."""
    result = Report(matches={"names": [], "docstrings": []})
    for name in names:
        area = area_of(name)
        if area is None:
            continue
        counts = result.phrases.setdefault(area, Counter())
        for line, prose in passages(root / name):
            for pattern, compiled in _COMPILED.items():
                number = sum(1 for _ in compiled.finditer(prose))
                if not number:
                    continue
                counts[pattern] += number
                result.matches.setdefault(pattern, []).append(
                    f"{name}:{line}: {prose.strip()[:150]}"
                )
                if pattern not in MODERATE:
                    result.by_file[name] += number
        if area == "code" and name.endswith(".py"):
            tree = ast.parse((root / name).read_text())
            result.matches["names"] += [
                f"{name}:{line}: {stored}"
                for line, stored in stored_names(tree)
                if stored.strip("_") in NAMES
            ]
            result.matches["docstrings"] += [
                f"{name}:{line}: {first}" for line, first in bad_docstrings(tree)
            ]
    return result


def passages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment, string, and paragraph of a file.

    Lines of one comment or paragraph are joined, because a phrase may be broken across lines.
    """
    source = path.read_text(errors="replace")
    if path.suffix == ".md":
        prose = _NOT_PROSE_OF_PAGE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
        yield from _joined((n, s) for n, s in enumerate(prose.split("\n"), 1) if s.strip())
    elif path.suffix == ".py":
        comments, strings = [], []
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                comments.append((token.start[0], token.string))
            elif tokenize.tok_name[token.type] in ("STRING", "FSTRING_MIDDLE"):
                strings.append((token.start[0], re.sub(r"\s*\n\s*", " ", token.string)))
        yield from ((n, s) for n, s in [*_joined(comments), *strings] if " " in s.strip())
    else:
        comment_or_string = r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\""
        for match in re.finditer(comment_or_string, source, re.DOTALL):
            prose = re.sub(r"\s*\n\s*(\*\s)?", " ", match[0])
            if " " in prose.strip():
                yield source.count("\n", 0, match.start()) + 1, prose


def _joined(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield consecutive lines joined into one, with the number of the first."""
    block: list[str] = []
    start = last = 0
    for number, line in lines:
        if block and number != last + 1:
            yield start, " ".join(block)
            block = []
        if not block:
            start = number
        block.append(line.strip().lstrip("#").strip())
        last = number
    if block:
        yield start, " ".join(block)


def stored_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of locals, parameters, attributes, and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def bad_docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the first line of docstrings that do not start with a verb or a noun."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            docstring = ast.get_docstring(node)
            if docstring and BAD_START.match(docstring):
                yield node.lineno, docstring.splitlines()[0]


def excess(totals: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """Return a message for each count that is above its limit."""
    return [
        f"prose: {count} {name}, {count - limits[name]} more than in {COUNTS.name}; "
        f"`python tests/architecture/prose.py` lists them"
        for name, count in totals.items()
        if count > limits[name]
    ]


def main() -> int:
    """Print, check, or update the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pattern", nargs="?", help="list the matches of this pattern")
    for option in ("--names", "--docstrings", "--check", "--update"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--top", type=int, default=12, help="number of files to list")
    options = parser.parse_args()
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    result = report(ROOT, [name for name in listed if (ROOT / name).exists()])
    if options.check:
        messages = excess(result.totals(), json.loads(COUNTS.read_text()))
        print("\n".join(messages), file=sys.stderr, end="\n" if messages else "")
        return 1 if messages else 0
    if options.update:
        COUNTS.write_text(json.dumps(result.totals(), indent=2) + "\n")
        return 0
    list_of = "names" if options.names else "docstrings" if options.docstrings else options.pattern
    if list_of:
        print("\n".join(result.matches.get(list_of, ())))
        return 0
    areas = sorted(result.phrases)
    print(*(f"{area:>6}" for area in areas), " pattern")
    for pattern, (_, instead) in PATTERNS.items():
        counts = (f"{result.phrases[area][pattern]:6}" for area in areas)
        print(*counts, f" {pattern:26} {instead}")
    print("\n" + "\n".join(f"{n:6} {name}" for name, n in result.by_file.most_common(options.top)))
    print("\n" + ", ".join(f"{count} {name}" for name, count in result.totals().items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
