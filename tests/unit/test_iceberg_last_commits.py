from __future__ import annotations

import pytest

from connectors.iceberg.protocol import last_commits
from connectors.iceberg.protocol.last_commits import ALL_TEXTS, TEXT_LENGTH, LastCommits, stamp_of
from connectors.iceberg.protocol.ledger import Ledger
from connectors.iceberg.protocol.offset_metadata import OffsetMetadata
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.rules import PROTOCOL_RULES


def commit(epoch: int, cycle: int) -> Ledger:
    return Ledger(Epoch(epoch, "a"), "c", cycle, "t", "k", {})


def mark(commits: LastCommits, epoch: int = 7) -> OffsetMetadata:
    return OffsetMetadata(Epoch(epoch, "a"), 0, "id-1", commits=commits.to_text(1))


def known(**newest: tuple[int, int]) -> LastCommits:
    commits = LastCommits()
    for uuid, (epoch, cycle) in newest.items():
        commits.note(uuid, commit(epoch, cycle))
    return commits


def remembers_newer(commits: LastCommits, uuid: str, ledger: Ledger | None) -> bool:
    """Return True if a newer commit of the table than this one is known."""
    stamp = None if ledger is None else stamp_of(ledger)
    return PROTOCOL_RULES.is_older_commit(stamp, commits.newest(uuid))


def test_offset_metadata_yields_the_newest_commit_of_each_table() -> None:
    merged = LastCommits.of_marks(
        [mark(known(a=(7, 3), b=(6, 900))), mark(known(a=(7, 5), c=(1, 1)))]
    )
    for uuid, epoch, cycle in (("a", 7, 5), ("b", 6, 900), ("c", 1, 1)):
        assert not remembers_newer(merged, uuid, commit(epoch, cycle))
        assert remembers_newer(merged, uuid, commit(epoch, cycle - 1))
        assert remembers_newer(merged, uuid, commit(epoch - 1, cycle + 1))
        assert remembers_newer(merged, uuid, None)
    assert not remembers_newer(merged, "never seen", None)


def test_older_commit_seen_later_does_not_replace_the_newer_one() -> None:
    commits = known(a=(7, 5))
    commits.note("a", commit(6, 9))
    assert remembers_newer(commits, "a", commit(7, 4))


def test_marks_of_before_all_offsets_were_altered_do_not_count() -> None:
    altered = mark(LastCommits(since=8), epoch=8)
    merged = LastCommits.of_marks([mark(known(a=(7, 5))), altered])
    assert not remembers_newer(merged, "a", commit(7, 4))
    after = LastCommits.of_marks([altered])
    after.note("a", commit(9, 1))
    # the first one was never rewritten
    again = LastCommits.of_marks([mark(known(b=(7, 5))), mark(after, epoch=9)])
    assert not remembers_newer(again, "b", None)
    assert remembers_newer(again, "a", commit(8, 1))


def test_marks_that_know_of_no_commits_say_nothing() -> None:
    assert LastCommits().to_text(1) == ""
    unknown = [
        OffsetMetadata(Epoch(7, "a"), 0, "id-1", commits=text)
        for text in ("", "later form", "7:", "7:AAAA", "x:", "é")
    ]
    assert not remembers_newer(LastCommits.of_marks(unknown), "a", None)


def tables(count: int) -> LastCommits:
    return known(**{f"table {n}": (40 + n % 3, 5_000_000 - n) for n in range(count)})


def test_mark_of_three_hundred_tables_fits_what_brokers_take() -> None:
    merged = LastCommits.of_marks([mark(tables(300))])
    assert all(remembers_newer(merged, f"table {n}", commit(39, 1)) for n in range(300))
    assert len(mark(tables(300)).to_text()) < 4_000


def test_least_recently_committed_tables_are_omitted_when_space_runs_out() -> None:
    text = tables(1_000).to_text(1)
    assert len(text) <= TEXT_LENGTH
    merged = LastCommits.of_marks([OffsetMetadata(Epoch(7, "a"), 0, "id-1", commits=text)])
    held = [n for n in range(1_000) if remembers_newer(merged, f"table {n}", None)]
    newest = sorted(range(1_000), key=lambda n: (40 + n % 3, 5_000_000 - n), reverse=True)
    assert len(held) > 250
    assert set(held) == set(newest[: len(held)])


def test_offset_metadata_of_many_partitions_shares_one_size_limit() -> None:
    commits = tables(1_000)
    assert 0 < len(commits.to_text(1_000)) <= ALL_TEXTS // 1_000
    assert commits.to_text(100_000) == ""
    assert len(commits.to_text(1)) > 2_000


def test_text_that_many_marks_have_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    unpacked = last_commits.unpack

    def unpack(text: str, columns: int) -> list[list[int]]:
        read.append(text)
        return unpacked(text, columns)

    monkeypatch.setattr(last_commits, "unpack", unpack)
    merged = LastCommits.of_marks(
        [mark(known(a=(7, 5))) for _ in range(500)] + [mark(known(a=(7, 6)))]
    )
    assert len(read) == 2
    assert remembers_newer(merged, "a", commit(7, 5))
