"""Halves of changed keys find each other, whatever was read first."""

from __future__ import annotations

from connectors.iceberg.commit.key_pairs import PairRow, match

DELETE, INSERT, ALONE, NOTHING = 0, 1, 2, 3
BOTH, A, B = frozenset("ab"), frozenset("a"), frozenset("b")


def image(row: int, pair: str, lacking: frozenset[str] = frozenset(), **more: object) -> PairRow:
    return PairRow(row, lacking, DELETE, pair, (row,), **more)  # type: ignore[arg-type]


def insert(
    row: int, pair: str, number: int = 1, half: int = INSERT, lacking: frozenset[str] = BOTH
) -> PairRow:
    begun = (half, pair, number)
    return PairRow(row, lacking, half, pair, (row,), partial=bool(lacking), begun_by=begun)


def test_insert_is_filled_from_the_row_of_its_paired_delete() -> None:
    plan = match([image(1, "x"), image(2, "y"), insert(3, "y")], [])
    assert plan.fills == {3: [(2, BOTH)]}
    assert (plan.open_deletes, plan.open_inserts, plan.unread, plan.unknown) == ([1], [], 0, {})


def test_equal_pairs_match_in_order_including_halves_from_before() -> None:
    plan = match([image(1, "x"), insert(2, "x", 1), insert(3, "x", 2)], [image(-1, "x")])
    assert plan.fills == {2: [(-1, BOTH)], 3: [(1, BOTH)]}
    # lacked no value, and precedes its delete
    earlier = PairRow(-1, half=INSERT, pair="x", place=(-1,))
    plan = match([image(1, "x"), image(2, "x"), insert(3, "x", 1)], [earlier])
    assert plan.fills == {3: [(2, BOTH)]}
    assert (plan.open_deletes, plan.open_inserts) == ([], [])


def test_twice_changed_key_takes_each_value_from_the_nearest_row() -> None:
    middle = image(2, "y", B, begun_by=(INSERT, "x", 1))
    plan = match([image(1, "x"), middle, insert(3, "y")], [])
    assert plan.fills == {3: [(2, A), (1, B)]}


def test_insert_without_its_delete_is_unread_unless_given_up() -> None:
    assert match([insert(1, "x")], []).unread == 1
    plan = match([insert(1, "x", half=ALONE)], [])
    assert (plan.unread, plan.unknown, plan.open_inserts) == (0, {1: BOTH}, [(ALONE, "x")])
    whole = match([insert(1, "x", lacking=frozenset())], [])
    assert (whole.unread, whole.unknown, whole.open_inserts) == (0, {}, [(INSERT, "x")])


def test_insert_is_unknown_when_its_delete_removed_no_row() -> None:
    nothing = PairRow(1, half=NOTHING, pair="x", place=(1,))
    plan = match([nothing, insert(2, "x"), insert(3, "x", 2)], [])
    assert (plan.unread, plan.unknown, plan.open_deletes) == (1, {2: BOTH, 3: BOTH}, [])
    assert match([insert(2, "x")], [nothing]).unread == 0
    assert match([nothing, image(2, "x"), insert(3, "x", 2)], []).fills == {3: [(2, BOTH)]}


def test_pair_with_known_place_matches_existing_rows_when_reread() -> None:
    again = match([image(2, "x@"), insert(3, "x@")], [image(-2, "x@")])
    assert (again.fills, again.open_deletes, again.open_inserts) == ({3: [(-2, BOTH)]}, [], [])
    given_up = PairRow(-1, half=ALONE, pair="x@", place=(-1,))
    again = match([image(2, "x@"), insert(3, "x@")], [given_up])
    assert (again.fills, again.unread, again.open_deletes) == ({3: [(2, BOTH)]}, 0, [])
    assert match([image(1, "x@"), image(2, "x@")], []).open_deletes == [1]


def test_row_that_depends_on_an_unread_delete_is_unread_too() -> None:
    middle = image(2, "y", B, begun_by=(INSERT, "x", 1))
    assert match([middle, insert(3, "y")], []).unread == 1
    assert match([middle], []).unread == 1, "it would be kept without the value"
    given_up = image(2, "y", B, begun_by=(ALONE, "x", 1))
    assert match([given_up, insert(3, "y")], []).unread == 0


def test_what_stays_open_is_filled_too() -> None:
    left = image(2, "y", BOTH, begun_by=(INSERT, "x", 1))
    plan = match([left, image(1, "x")], [image(-2, "z"), image(-1, "z")])
    assert plan.fills == {2: [(1, BOTH)]}
    assert sorted(plan.open_deletes) == [-2, -1, 1, 2]


def test_row_lacking_values_without_any_pair_is_unknown() -> None:
    assert match([PairRow(1, A, partial=True)], []).unknown == {1: A}


def test_a_circle_of_damaged_pairs_ends() -> None:
    one = image(1, "x", A, begun_by=(INSERT, "y", 1))
    other = image(2, "y", A, begun_by=(INSERT, "x", 1))
    plan = match([one, other, insert(3, "x", lacking=A)], [])
    assert plan.unknown == {3: A}
