from __future__ import annotations

import json

import pytest

from connect_py.api.record import TopicPartition
from connectors.iceberg.protocol.mark import GroupOffset, Mark
from connectors.iceberg.protocol.messages import (
    Attach,
    Attached,
    Attachment,
    CommitComplete,
    EpochStarted,
    Message,
    Need,
    OpenTable,
    Range,
    Release,
    Report,
    Rewind,
    StartCommit,
    TableNeed,
    TableOpened,
    TablePart,
    TableRefused,
    decode,
    encode,
)
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.table import StagedFile, StagedKind

EPOCH = Epoch(7, "a1b2")
P0, P1 = TopicPartition("orders", 0), TopicPartition("a.b", 12)
FILE = StagedFile(StagedKind.PATCHES, "s3://w/f.parquet", 3, 999, 1, 0, ("x", None), ("note",))
PART = TablePart("t-1", 90, 101, (FILE,))
RANGE = Range("id-1", 2, 3, "n1", 100, 130, {"db.t": PART, "db.quiet": TablePart("t-2", 125, None)}, 1_700_000_000_000)
ATTACHMENT = Attachment("id-1", 2, 130, 100, 3, {"db.t": TableNeed("t-1", 90)})

MESSAGES: list[Message] = [
    Attach("sink-0", 5, "n1", {P0: "id-1", P1: "id-2"}, EPOCH),
    Attach("sink-0", 5, "n1", {}, None),
    OpenTable("sink-0", EPOCH, "db.t", Need.EVOLVE, '{"type":"struct"}'),
    Report("sink-0", 5, EPOCH, 17, {P0: RANGE, P1: Range("id-2", 0, 0, "n1", 4, 4)}),
    EpochStarted(EPOCH),
    Attached(EPOCH, "n1", {P0: ATTACHMENT}),
    TableOpened(EPOCH, "db.t", "t-1", {P0: 90, P1: 0}, '{"location":"x"}'),
    TableRefused(EPOCH, "db.t", "no such column"),
    TableRefused(EPOCH, "db.t", "does not exist", skip=True),
    Rewind(EPOCH, None, {P0: ATTACHMENT}),
    Rewind(EPOCH, "n1", {P0: ATTACHMENT}),
    StartCommit(EPOCH, 18, {P0: Release(100, 3)}),
    CommitComplete(EPOCH, 18, {}),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\xc2\x01\x00",
        b"[1]",
        b'{"v":2,"type":"epoch_started","epoch":[7,"a"]}',
        b'{"v":1,"type":"dance","epoch":[7,"a"]}',
        b'{"v":1,"type":"report"}',
        b'{"v":1,"type":"epoch_started","epoch":7}',
    ],
)
def test_what_is_not_known_is_ignored(data: bytes | None) -> None:
    assert decode(data) is None


def test_further_fields_do_not_disturb() -> None:
    document = json.loads(encode(EpochStarted(EPOCH))) | {"mood": "good"}
    assert decode(json.dumps(document).encode()) == EpochStarted(EPOCH)


def test_mark_comes_back_from_the_group() -> None:
    mark = Mark(EPOCH, 2, "id-1")
    assert GroupOffset.of(130, mark.to_text()) == GroupOffset(130, mark)
    assert len(mark.to_text()) < 200


@pytest.mark.parametrize(
    "text", [None, "", "-", "{}", "[]", "7", '{"connect-py":1}', '{"connect-py":99,"epoch":[1,"a"]}']
)
def test_foreign_metadata_is_no_mark(text: str | None) -> None:
    assert Mark.from_text(text) is None
