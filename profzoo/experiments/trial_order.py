"""Puts the settings that are tried on a cell in order: its plans first, in their order, and then the rest."""

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

# The most plans that are tried although the panel has no such settings.
PLANS = 3


class ExpectedPlan(TypedDict):
    """What is expected of settings: their gain, their place among the plans of the cell, and their words."""

    gain: float | None
    rank: NotRequired[int]
    words: NotRequired[Sequence[str]]


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


def order_settings(names: Sequence[str], expected: Mapping[str, ExpectedPlan]) -> list[str]:
    """Return names of settings in the order in which they are tried.

    Plans that are expected to gain come first, then settings of which nothing is expected, in their own order, and then
    plans that are not expected to gain.

    >>> order_settings(["a", "b", "c"], {"a": {"gain": 0.9, "rank": 2}, "c": {"gain": 1.5, "rank": 1}})
    ['c', 'b', 'a']
    """

    def key(name: str) -> tuple[int, float]:
        one = expected.get(name)
        if one is None or one["gain"] is None:
            return 1, 0.0
        return 0 if one["gain"] > 1 else 2, _place(one)

    return sorted(names, key=key)


def _place(one: ExpectedPlan) -> float:
    """Return what plans are sorted by: their rank, or without ranks the gain."""
    return one["rank"] if "rank" in one else -(one["gain"] or 0.0)
