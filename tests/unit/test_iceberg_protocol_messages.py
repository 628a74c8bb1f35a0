from __future__ import annotations

import json
import random
import zlib
from dataclasses import replace

import pytest

from connect_py.api.record import TopicPartition
from connectors.iceberg.protocol.messages import (
    RECORD_BYTES,
    Attach,
    Attached,
    Attachment,
    Bounded,
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
    encode_all,
)
from connectors.iceberg.protocol.offset_metadata import GroupOffset, OffsetMetadata
from connectors.iceberg.protocol.positions import Bound, Epoch
from connectors.iceberg.table.table import StagedFile, StagedKind

EPOCH = Epoch(7, "a1b2")
P0, P1 = TopicPartition("orders", 0), TopicPartition("a.b", 12)
FILE = StagedFile(StagedKind.CHANGES, "s3://w/f.parquet", 3, 999, 1, 0, ("x", None), ("note",))
PART = TablePart("t-1", 90, 101, (FILE,))
RANGE = Range(
    "id-1",
    2,
    3,
    "n1",
    100,
    130,
    {"db.t": PART, "db.quiet": TablePart("t-2", 125, None)},
    1_700_000_000_000,
)
ATTACHMENT = Attachment("id-1", 2, 130, 100, 3, {"db.t": TableNeed("t-1", 90)})

MESSAGES: list[Message] = [
    Attach("sink-0", 5, "n1", {P0: "id-1", P1: "id-2"}, EPOCH),
    Attach("sink-0", 5, "n1", {}, None),
    OpenTable("sink-0", EPOCH, "db.t", Need.EVOLVE, '{"type":"struct"}'),
    Report("sink-0", 5, EPOCH, 17, {P0: RANGE, P1: Range("id-2", 0, 0, "n1", 4, 4)}),
    EpochStarted(EPOCH),
    Attached(EPOCH, "n1", {P0: ATTACHMENT}, "0:x"),
    TableOpened(EPOCH, "db.t", "t-1", {P0: 90, P1: 0}, '{"location":"x"}'),
    TableRefused(EPOCH, "db.t", "no such column"),
    TableRefused(EPOCH, "db.t", "does not exist", skip=True),
    TableRefused(EPOCH, "db.t", "cannot be created", rows=True),
    Rewind(EPOCH, None, {P0: ATTACHMENT}),
    Rewind(EPOCH, "n1", {P0: ATTACHMENT}, "0:x"),
    StartCommit(EPOCH, 18, {P0: Release(100, 3)}, "0:x"),
    CommitComplete(EPOCH, 18, {}),
    Attached(EPOCH, "n-1", {P0: replace(ATTACHMENT, bound=Bound("abc/5", 140))}),
    Bounded(EPOCH, "abc/5", {"orders": "id-1"}, {P0: 140, P1: 0}),
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
        b'{"v":3,"type":"epoch_started","epoch":[7,"a"]}',
        b'{"v":1,"type":"dance","epoch":[7,"a"]}',
        b'{"v":1,"type":"report"}',
        b'{"v":1,"type":"epoch_started","epoch":7}',
    ],
)
def test_what_is_not_known_is_ignored(data: bytes | None) -> None:
    assert decode(data) is None


def many(partitions: int) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic in ("orders", "lines")
        for number in range(partitions // 2)
    ]


def file(table: str, partition: TopicPartition) -> StagedFile:
    """Return names of random characters, which hardly compress."""
    name = f"connect-py-sink.7-a1b2.17-{partition.partition}-{random.randbytes(12).hex()}.parquet"
    return StagedFile(StagedKind.ROWS, f"s3://lake/warehouse/db/{table}/data/{name}", 3, 999, 1, 0)


def large() -> list[Message]:
    """What 5,000 partitions, and many partitions with many tables, say at once."""
    tables = {f"db.t{number:03}": f"{number:04}-4bcd" for number in range(100)}
    places = dict(zip(tables, range(100), strict=True))
    files = {P0: ("db.t000",), **{tp: tuple(tables) for tp in many(150)}}
    return [
        Attach("sink-0", 5, "n1", dict.fromkeys(many(5000), "id-1"), EPOCH),
        Report(
            "sink-0",
            5,
            EPOCH,
            17,
            {
                tp: Range(
                    "id-1",
                    0,
                    0,
                    "n1",
                    4,
                    9,
                    {t: TablePart(tables[t], 4, 4, (file(t, tp),)) for t in names},
                    7,
                )
                for tp, names in files.items()
            },
        ),
        Attached(
            EPOCH,
            "n1",
            {
                tp: Attachment(
                    "id-1",
                    0,
                    10 * tp.partition,
                    3,
                    0,
                    {
                        table: TableNeed(uuid, 10 * tp.partition - places[table] % 2)
                        for table, uuid in tables.items()
                    },
                )
                for tp in many(400)
            },
        ),
        StartCommit(EPOCH, 18, {tp: Release(random.randrange(10**9), 3) for tp in many(5000)}),
        TableOpened(
            EPOCH, "db.t", "t-1", {tp: random.randrange(10**9) for tp in many(5000)}, "x" * 400_000
        ),
    ]


@pytest.mark.parametrize("message", large(), ids=lambda m: type(m).__name__)
def test_large_messages_fit_into_records_and_nothing_is_left_out(message: Message) -> None:
    records = list(encode_all(message))
    assert max(map(len, records)) <= RECORD_BYTES
    parts = [decode(record) for record in records]
    together: dict[TopicPartition, object] = {}
    for part in parts:
        assert type(part) is type(message)
        name = next(f for f in ("partitions", "ranges", "releases", "needs") if hasattr(part, f))
        assert replace(part, **{name: {}}) == replace(message, **{name: {}})  # type: ignore[arg-type, type-var]
        assert not together.keys() & getattr(part, name).keys()
        together |= getattr(part, name)
    assert together == getattr(message, name)


def test_attachments_of_many_tables_are_told_as_columns() -> None:
    attached = large()[2]
    assert isinstance(attached, Attached)
    assert sum(map(len, encode_all(attached))) < 30_000  # 2 MB as plain JSON
    # no columns, if one table is not as the others say
    for changed in (TableNeed("other", 3), None):
        first, *_ = attached.partitions
        needs = {**attached.partitions[first].needs, "db.t007": changed} if changed else {}
        odd = {**attached.partitions, first: replace(attached.partitions[first], needs=needs)}
        assert decode(encode(replace(attached, partitions=odd))) == replace(
            attached, partitions=odd
        )


def test_small_messages_stay_readable_for_older_versions() -> None:
    for message in MESSAGES:
        assert list(encode_all(message)) == [encode(message)]
        assert json.loads(encode(message))["v"] == 1


@pytest.mark.parametrize(
    "data", [zlib.compress(b"{}")[:-3], zlib.compress(b"nonsense"), b"x nothing of ours"]
)
def test_compressed_bytes_that_cannot_be_decoded_are_ignored(data: bytes) -> None:
    assert decode(data) is None


def test_unknown_fields_of_a_message_are_ignored_when_decoded() -> None:
    document = json.loads(encode(EpochStarted(EPOCH))) | {"mood": "good"}
    assert decode(json.dumps(document).encode()) == EpochStarted(EPOCH)


def test_mark_comes_back_from_the_group() -> None:
    mark = OffsetMetadata(EPOCH, 2, "id-1")
    assert GroupOffset.of(130, mark.to_text()) == GroupOffset(130, mark)
    assert len(mark.to_text()) < 200
    bounded = replace(mark, bound=Bound("abc/5", 140))
    assert OffsetMetadata.from_text(bounded.to_text()) == bounded
    told = OffsetMetadata(EPOCH, 2, "id-1", 1, "0:x")
    assert OffsetMetadata.from_text(told.to_text()) == told


def test_messages_and_marks_of_before_know_of_no_newest_commits() -> None:
    for message in MESSAGES:
        document = json.loads(encode(message))
        document.pop("commits", None)
        again = decode(json.dumps(document).encode())
        assert getattr(again, "commits", "") == ""
        assert again == (replace(message, commits="") if hasattr(message, "commits") else message)


@pytest.mark.parametrize(
    "text",
    [None, "", "-", "{}", "[]", "7", '{"connect-py":1}', '{"connect-py":99,"epoch":[1,"a"]}'],
)
def test_foreign_offset_metadata_is_not_parsed_as_ours(text: str | None) -> None:
    assert OffsetMetadata.from_text(text) is None
