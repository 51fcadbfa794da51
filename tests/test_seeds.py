"""What a run plays of the cases that are too many for each commit."""

import pytest

from tests import seeds


@pytest.mark.parametrize("commits", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["tests/a.py", "tests/b.py::test_it"])
def test_of_so_many_commits_one_plays_the_test(
    name: str, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeds, "IS_NIGHT", False)
    played = 0
    for base in range(commits):
        monkeypatch.setattr(seeds, "BASE", base * seeds.TURN)
        played += seeds.is_turn(name, commits)
    assert played == 1


def test_a_night_plays_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "IS_NIGHT", True)
    assert all(seeds.is_turn(f"tests/{number}.py", 3) for number in range(20))
