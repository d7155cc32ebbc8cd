"""Says what operators need: of a call, of the calls of a trace without what these call, and of launches."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from profzoo.needed import attention, convolutions, elementwise, encoders, products, recurrent
from profzoo.needed.calls import Call, Needed

SUBJECTS = (products, convolutions, attention, recurrent, encoders, elementwise)
FORMULAS: dict[str, Callable[[Call], Needed]] = {
    name: formula for subject in SUBJECTS for name, formula in subject.FORMULAS.items()
}
SIGNATURES = {name: inputs.split() for subject in SUBJECTS for name, inputs in subject.SIGNATURES.items()}
COLUMNS = ["needed_product_flop", "needed_other_flop", "needed_bytes"]
INPUTS = ["operator", "dims", "types", "values"]


def needed(operator: str, dims: Sequence[Any], types: Sequence[str], values: Sequence[str]) -> Needed | None:
    """What a call needs, with all that it calls; None for operators without a formula, or where inputs are not told.

    Args:
        operator: its name, as `aten::mm`; dims, types, values: of its inputs as torch.profiler's trace has them, under
            `Input Dims`, `Input type` and `Concrete Inputs`.

    >>> needed("aten::mm", [[4, 5], [5, 6]], ["float", "float"], ["", ""])
    Needed(product_flop=240, other_flop=0, bytes=296)
    """
    formula = FORMULAS.get(operator)
    if formula is None:
        return None
    try:
        return formula(Call(operator, SIGNATURES.get(operator, []), dims, types, values))
    except (ValueError, IndexError, TypeError):
        # A trace has no shapes where it was told to record none, and inputs may be of kinds that formulas do not know.
        return None


def of_calls(calls: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS of each call: what it needs but for what the operators need that it calls; empty where that is unknown.

    Args:
        calls: INPUTS, of which all but `operator` are lists, or texts of them in JSON; `parent`, the position of the
            row that called it, -1 where none did; each stands behind its own.

    So they may be added up over any rows, and a fused operator counts for what it does by itself.
    """
    wholes = _wholes(calls)
    known = ~np.isnan(wholes).any(axis=1)
    # The nearest row above that has a formula, for which this one's part is no longer counted.
    above: list[int] = []
    for parent in calls["parent"].tolist():
        above.append(parent if parent < 0 or known[parent] else above[parent])
    counted = np.flatnonzero(known & (np.array(above, dtype=np.int64) >= 0))
    own = wholes.copy()
    np.subtract.at(own, np.array(above, dtype=np.int64)[counted], wholes[counted])
    return pd.DataFrame(np.maximum(own, 0), index=calls.index, columns=COLUMNS)


def of_launches(launches: pd.Series, calls: pd.DataFrame) -> pd.DataFrame:
    """COLUMNS of each launch: with the first of a call what this needs, 0 with its others, so that they add up.

    Args:
        launches: by launch, the number of the call of the innermost operator that made it; calls: as of_calls has them,
            with `call`, these numbers.

    Empty where the operator has no formula, its inputs are not told, or the call is not there.
    """
    of_call = of_calls(calls).set_axis(pd.Index(calls["call"]))
    found = of_call[~of_call.index.duplicated()].reindex(launches).set_axis(launches.index)
    others = launches.duplicated()
    found[others] = found[others].where(found[others].isna(), 0)
    return found


def _wholes(calls: pd.DataFrame) -> np.ndarray:
    """(calls, COLUMNS): what each needs with all that it calls, NaN where unknown."""
    texts = [[value if isinstance(value, str) else json.dumps(value) for value in calls[name]] for name in INPUTS[1:]]
    found = [_of_text(*call) for call in zip(calls["operator"], *texts, strict=True)]
    return np.array(found, dtype=np.float64).reshape(len(calls), len(COLUMNS))


@cache
def _of_text(operator: str, dims: str, types: str, values: str) -> tuple[float, float, float]:
    if operator not in FORMULAS:
        return (np.nan,) * 3
    found = needed(operator, json.loads(dims or "[]"), json.loads(types or "[]"), json.loads(values or "[]"))
    return (np.nan,) * 3 if found is None else (found.product_flop, found.other_flop, found.bytes)
