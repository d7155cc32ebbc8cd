"""Cases of a parametrised test of which a few run each time and the others are marked slow."""

from collections.abc import Iterable
from typing import Any

import pytest

PARAMETERS = type(pytest.param())


def only(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Return the cases, of which all but the kept ones are marked slow; each kept one must be a case."""
    cases = list(cases)
    assert kept and all(case in cases for case in kept), kept
    return [case if case in kept else _marked(case) for case in cases]


def first(cases: Iterable[Any], kept: int = 1) -> list[Any]:
    """Return the cases, of which all after the first `kept` are marked slow."""
    return [case if place < kept else _marked(case) for place, case in enumerate(cases)]


def _marked(case: Any) -> Any:
    if isinstance(case, PARAMETERS):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
