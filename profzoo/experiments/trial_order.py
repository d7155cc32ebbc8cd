"""Puts the settings that are tried on a cell in order: its plans first, in their order, and then the rest."""

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

# The most plans that are tried although the panel has no such settings.
PLANS = 3


class ExpectedPlan(TypedDict):
    """What is expected of settings: their gain, their place among the plans of the cell, and their words.

    not_possible: why the cell cannot have them; they have no gain.
    """

    gain: float | None
    rank: NotRequired[int]
    words: NotRequired[Sequence[str]]
    not_possible: NotRequired[str]


def add_plans(
    candidates: Mapping[str, Sequence[str]], expected: Mapping[str, ExpectedPlan]
) -> dict[str, Sequence[str]]:
    """Return the candidates with the first PLANS plans that are expected to help and that no candidate is.

    Args:
        candidates: setting words by name.
        expected: what is expected of settings, by the same names.

    >>> own = {"both": {"gain": 2.0, "rank": 1, "words": ["a=1", "b=2"]}, "slow": {"gain": 0.9, "words": ["c=1"]}}
    >>> add_plans({"a": ["a=1"]}, own)
    {'a': ['a=1'], 'both': ['a=1', 'b=2']}
    """
    more = [
        (_place(one), name, one["words"])
        for name, one in expected.items()
        if name not in candidates and one.get("words") and (one["gain"] or 0.0) > 1
    ]
    return {**candidates, **{name: words for _, name, words in sorted(more)[:PLANS]}}


def order_settings(candidates: Mapping[str, Sequence[str]], expected: Mapping[str, ExpectedPlan]) -> list[str]:
    """Return names of candidates in the order in which they are tried.

    Plans that are expected to gain come first, then settings of which nothing is expected, in their own order, and then
    plans that are not expected to gain. Settings that the cell is said not to be able to have come last.

    >>> words = {"a": ["a=1"], "b": ["b=1"], "c": ["c=1"], "d": ["d=1", "b=2"]}
    >>> plans = {"a": {"gain": 0.9, "rank": 2}, "c": {"gain": 1.5, "rank": 1}}
    >>> order_settings(words, plans | {"b=2": {"gain": None, "words": ["b=2"], "not_possible": "it waits"}})
    ['c', 'b', 'a', 'd']
    """
    impossible = {word for one in expected.values() if one.get("not_possible") for word in one.get("words", ())}

    def key(name: str) -> tuple[int, float]:
        one = expected.get(name)
        if impossible & set(candidates[name]):
            return 3, 0.0
        if one is None or one["gain"] is None:
            return 1, 0.0
        return 0 if one["gain"] > 1 else 2, _place(one)

    return sorted(candidates, key=key)


def _place(one: ExpectedPlan) -> float:
    """Return what plans are sorted by: their rank, or without ranks the gain."""
    return one["rank"] if "rank" in one else -(one["gain"] or 0.0)
