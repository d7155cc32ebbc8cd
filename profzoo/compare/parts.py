"""Where a difference lies: what each part of the step, range, class of kernels, and kernel adds to it or takes away."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from profzoo.reading import kinds
from profzoo.reading.tables import Table
from profzoo.tables import step_shares
from profzoo.tables.coverage import KEYS

SIDES = ("baseline", "candidate")
COLUMNS = {
    **dict.fromkeys(["model", "phase", "baseline", "candidate", "level", "range", "name"], kinds.TEXT),
    **dict.fromkeys(["baseline_ns", "candidate_ns"], kinds.AMOUNT),
    **dict.fromkeys(["delta_ns", "delta_share"], kinds.NUMBER),
    **dict.fromkeys(["baseline_launches", "candidate_launches"], kinds.maybe(kinds.AMOUNT)),
    "change": kinds.TEXT,
}
PART, RANGE, CLASS, KERNEL = "part", "range", "class", "kernel"
APPEARED, VANISHED, CHANGED = "appeared", "vanished", "other configuration"
TABLE = Table(columns=COLUMNS, key=["model", "phase", "baseline", "candidate", "level", "range", "name"])


@dataclass(frozen=True)
class Traced:
    """A cell on one side, under nsys: its table of kernels, and its row of steps with the unprofiled `step_ns`."""

    kernels: pd.DataFrame
    step: Mapping[str, float]

    def parts(self) -> dict[str, float]:
        """Time of each part of the unprofiled step, in ns; they add up to it."""
        shares = step_shares.shares(pd.DataFrame([self.step])).iloc[0]
        return {name: float(share) * self.step["step_ns"] for name, share in shares.items()}

    def timed(self) -> pd.DataFrame:
        """The rows of kernels with `ns`, what each has of the step's time with kernels; these add up to that.

        nsys' times add up to another sum where kernels run side by side, or at other clocks.
        """
        seen = self.kernels[self.kernels["total_ns"].notna()]
        whole = self.parts()["kernels"] + self.parts()["communication"]
        return seen.assign(ns=seen["total_ns"] / seen["total_ns"].sum() * whole if len(seen) else 0.0)


def table(baseline: Traced, candidate: Traced) -> pd.DataFrame:
    """Rows of COLUMNS without the names of cell and sides, each level from the largest change on.

    At level `part` the deltas add up to the difference of the steps; at each other level to that of the time with
    kernels. `delta_share` is of the baseline's step. A kernel is told by its name and range; `change` says whether one
    side alone launches it, or by other grids, blocks, shared memory or another variant of its code.
    """
    sides = dict(zip(SIDES, (baseline, candidate), strict=True))
    frames = [_of_parts(sides)]
    rows = {name: side.timed() for name, side in sides.items()}
    for level, by in ((RANGE, ["range"]), (CLASS, ["class"]), (KERNEL, ["range", "kernel"])):
        frames.append(_grouped(rows, level, by))
    found = pd.concat(frames, ignore_index=True)
    found["delta_ns"] = found["candidate_ns"] - found["baseline_ns"]
    found["delta_share"] = found["delta_ns"] / baseline.step["step_ns"]
    places = {level: place for place, level in enumerate((PART, RANGE, CLASS, KERNEL))}
    order = found.assign(_level=found["level"].map(places), _size=-found["delta_ns"].abs())
    order = order.sort_values(["_level", "_size", "range", "name"], kind="stable")
    return order[[name for name in COLUMNS if name in order]].reset_index(drop=True)


def _of_parts(sides: Mapping[str, Traced]) -> pd.DataFrame:
    found = pd.DataFrame({f"{name}_ns": pd.Series(side.parts()) for name, side in sides.items()})
    found = found[(found > 0).any(axis=1)].rename_axis("name").reset_index()
    return found.assign(level=PART, range="", change="")


def _grouped(rows: Mapping[str, pd.DataFrame], level: str, by: list[str]) -> pd.DataFrame:
    columns: dict[str, pd.Series] = {}
    for side, frame in rows.items():
        groups = frame.fillna({"range": "", "class": ""}).groupby(by, sort=False)
        columns |= {f"{side}_ns": groups["ns"].sum(), f"{side}_launches": groups["launches"].sum()}
    found = pd.DataFrame(columns)
    found["change"] = _changes(rows, by).reindex(found.index) if level == KERNEL else ""
    found = found.reset_index()
    found = found.assign(level=level, name=found[by[-1]], range=found.get("range", ""))
    numbers = list(columns)
    return found.drop(columns=[name for name in by if name != "range"]).fillna(dict.fromkeys(numbers, 0.0))


def _changes(rows: Mapping[str, pd.DataFrame], by: list[str]) -> pd.Series:
    """Of each kernel, how the configurations that it is launched by differ between the sides."""
    launched = {
        side: frame.fillna({"range": ""}).set_index(KEYS).groupby(by).apply(lambda group: frozenset(group.index))
        for side, frame in rows.items()
    }
    frame = pd.DataFrame(launched)
    one, other = frame["baseline"], frame["candidate"]
    said = pd.Series(CHANGED, index=frame.index).where(one != other, "")
    return said.mask(one.isna(), APPEARED).mask(other.isna(), VANISHED)
