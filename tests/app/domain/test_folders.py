"""The tree of folders: its order, its paths, and moves that keep it a tree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.domain.chat import Folder
from app.domain.folders import chain, in_order, inside, moved, path_text

WORK, SUB, DEEP, HOME = (
    Folder(1, "Work", position=0.0),
    Folder(2, "Sub", 1, position=0.0),
    Folder(3, "Deep", 2),
    Folder(4, "Home", position=1.0),
)
ALL = (HOME, DEEP, SUB, WORK)


def names(folders: list[tuple[Folder, int]]) -> list[tuple[str, int]]:
    return [(folder.name, depth) for folder, depth in folders]


def test_order_path_and_content() -> None:
    assert names(in_order(ALL)) == [("Work", 0), ("Sub", 1), ("Deep", 2), ("Home", 0)]
    assert path_text(ALL, 3) == "Work / Sub / Deep"
    assert path_text(ALL, 9) == path_text(ALL, None) == ""
    assert inside(ALL, [2]) == {2, 3}
    assert inside(ALL, [1, 4]) == {1, 2, 3, 4}


def test_a_folder_cannot_be_moved_into_itself() -> None:
    assert moved(ALL, 1, 1, None) == []
    assert moved(ALL, 1, 3, None) == []
    assert moved(ALL, 1, 9, None) == []  # unknown
    assert moved(ALL, 9, None, None) == []


def test_moving_orders_the_folders_beside() -> None:
    [home, *others] = moved(ALL, 4, None, 1)
    assert (home.name, home.position) == ("Home", 0.0)
    assert [(folder.name, folder.position) for folder in others] == [("Work", 1.0)]
    assert moved(ALL, 4, None, None) == []  # is the last one already
    [sub] = moved(ALL, 2, 4, None)
    assert (sub.parent, sub.position) == (4, 0.0)


def test_a_cycle_or_a_lost_parent_hides_no_folder() -> None:
    damaged = (Folder(1, "a", 2), Folder(2, "b", 1), Folder(3, "c", 9), Folder(4, "d", 4))
    assert sorted(folder.name for folder, _ in in_order(damaged)) == ["a", "b", "c", "d"]
    assert [folder.name for folder in chain(damaged, 1)] == ["a", "b"]


@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.none() | st.integers(0, 7), st.none() | st.integers(0, 7)),
        max_size=30,
    )
)
def test_any_moves_keep_a_tree_with_every_folder(moves: list[tuple[int, int, int]]) -> None:
    folders = {number: Folder(number, str(number), position=float(number)) for number in range(8)}
    for folder, parent, before in moves:
        for each in moved(list(folders.values()), folder, parent, before):
            folders[each.id] = each
        listed = list(folders.values())
        order = in_order(listed)
        assert sorted(each.id for each, _ in order) == sorted(folders)
        for each in listed:
            around = chain(listed, each.id)
            assert around[-1].parent is None
        for each, depth in order:
            assert depth == len(chain(listed, each.id)) - 1
