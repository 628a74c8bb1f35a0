"""Parsed JSON that nobody should trust: schemas and values with parts replaced, moved, doubled or
gone."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final, TypeAlias

Tree: TypeAlias = Any

NAMES: Final = [
    "a",
    "b",
    "id",
    "",
    " ",
    "a.b",
    ".",
    "a..b",
    "ü",
    "\U0001f600",
    "\0",
    "x" * 3000,
    "type",
    "key",
    "value",
    "before",
    "1",
    "-",
    "a b",
    "$ref",
    "__proto__",
    "\ud800",
    "schema",
    "payload",
    "null",
    "A",
    "items",
    "element",
]
NUMBERS: Final = [
    0,
    1,
    -1,
    2,
    7,
    38,
    39,
    76,
    77,
    127,
    128,
    255,
    1000,
    6000,
    -128,
    2**31 - 1,
    2**31,
    -(2**31),
    2**53,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    2**64,
    10**30,
    10**400,
    2_000_000_000,
    -2_000_000_000,
    0.0,
    -0.0,
    1.5,
    1e300,
    -1e300,
    5e-324,
    1e-7,
]
LEAVES: Final = [
    None,
    True,
    False,
    "",
    "x",
    "null",
    "NaN",
    "Infinity",
    "AQ==",
    "====",
    "1",
    "12.5",
    [],
    {},
    [[]],
    [None],
    {"": None},
]


def hostile(random: Random, kinds: Sequence[Tree]) -> Tree:
    """A value for any place; `kinds` are words that mean something to the format."""
    draw = random.random()
    if draw < 0.35 and kinds:
        return copy.deepcopy(random.choice(kinds))
    if draw < 0.55:
        return random.choice(NUMBERS)
    if draw < 0.7:
        return random.choice(NAMES)
    if draw < 0.73:
        return nested(random)
    return copy.deepcopy(random.choice(LEAVES))


def nested(random: Random) -> Tree:
    """Lists or objects one in another."""
    made: Tree = random.choice([1, None, "x"])
    for _ in range(random.choice([3, 20, 63, 64, 65, 90])):
        made = [made] if random.random() < 0.5 else {random.choice("abc"): made}
    return made


def damaged(random: Random, tree: Tree, kinds: Sequence[Tree] = (), changes: int = 0) -> Tree:
    """A copy of the tree with some of its parts changed; 0 changes: one to three."""
    tree = {"top": copy.deepcopy(tree)}
    for _ in range(changes or random.choice([1, 1, 2, 3])):
        places: list[tuple[Any, Any]] = []
        _collect(tree, places)
        holder, key = random.choice(places)
        other_holder, other_key = random.choice(places)
        match random.randrange(8):
            case 0 | 1 | 2:
                holder[key] = hostile(random, kinds)
            case 3 if holder is not tree:
                del holder[key]
            case 4:
                holder[key] = copy.deepcopy(other_holder[other_key])
            case 5 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 6 if isinstance(holder, dict) and holder is not tree:
                holder[random.choice(NAMES)] = (
                    holder.pop(key) if random.random() < 0.5 else hostile(random, kinds)
                )
            case _:
                holder[key] = (
                    [holder[key]] if random.random() < 0.5 else {random.choice(NAMES): holder[key]}
                )
    return tree["top"]


def _collect(tree: Tree, into: list[tuple[Any, Any]]) -> None:
    entries = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree))
    for key, inside in entries:
        into.append((tree, key))
        if isinstance(inside, dict | list) and len(into) < 2000:
            _collect(inside, into)


def text_of(random: Random, tree: Tree) -> bytes:
    """The tree as JSON, at times in a spelling that is seldom."""
    style = random.random()
    if style < 0.8:
        return json.dumps(tree, separators=(",", ":"), ensure_ascii=random.random() < 0.5).encode(
            "utf-8", "surrogatepass"
        )
    if style < 0.95:
        return json.dumps(tree, indent=random.choice([None, 1])).encode()
    text = json.dumps(tree)
    return random.choice(
        [
            text.encode("utf-16"),
            b"\xef\xbb\xbf" + text.encode(),
            b" \n" + text.encode() + b"\t",
            text.encode() * 2,
        ]
    )
