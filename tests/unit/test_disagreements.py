"""reconcile: disagreement of the tools is flagged, and explained where it can be."""

import pandas as pd
import pytest

from profzoo.tables import disagreements

NO_COVERAGE = pd.DataFrame(columns=["model", "phase", "other_choice", "missing"])


def agreement(**changes: float) -> pd.DataFrame:
    """A cell of 1,000 launches of 5 µs, on which the tools agree but for the changes."""
    row = {"model": "m", "phase": "train", "nsys_launches": 1000.0, "ncu_launches": 1000.0, "nsys_gpu_ns": 5e6,
           "ncu_gpu_ns": 5e6} | changes  # fmt: skip
    for measure in ("launches", "gpu_ns"):
        values = [row[f"{tool}_{measure}"] for tool in ("nsys", "ncu")]
        row[f"{measure}_spread"] = (max(values) - min(values)) / max(values)
    return pd.DataFrame([row])


def explained(table: pd.DataFrame, coverage: pd.DataFrame = NO_COVERAGE) -> tuple[str, str]:
    row = disagreements.explain_disagreements(table, coverage).iloc[0]
    return row["flag"], row["cause"]


@pytest.mark.parametrize("changes", [{}, {"ncu_gpu_ns": 5.5e6}, {"ncu_launches": 1010.0}])
def test_small_differences_are_none(changes: dict) -> None:
    assert explained(agreement(**changes)) == ("", "")


def test_short_launches_take_longer_alone() -> None:
    flag, cause = explained(agreement(ncu_gpu_ns=5.8e6))
    assert flag == "time" and cause.startswith("under ncu each launch runs alone and takes 0.8 µs more, beside 5.0 µs")


@pytest.mark.parametrize("ns", [4e6, 9e6])
def test_what_cannot_be_explained_says_so(ns: float) -> None:
    assert explained(agreement(ncu_gpu_ns=ns)) == ("time", disagreements.UNKNOWN)


def test_different_launches_without_different_kernels() -> None:
    assert explained(agreement(ncu_launches=900.0, ncu_gpu_ns=4e6)) == ("launches, time", disagreements.UNKNOWN)


def test_different_kernels_explain_both() -> None:
    coverage = pd.DataFrame([{"model": "m", "phase": "train", "other_choice": True, "missing": "wgrad; gemm"}])
    flag, cause = explained(agreement(ncu_launches=900.0), coverage)
    assert flag == "launches" and cause.startswith("the runs launched different kernels (wgrad; gemm)")


def test_cells_of_one_tool_are_not_flagged() -> None:
    table = agreement().drop(columns=["ncu_launches", "ncu_gpu_ns"])
    assert explained(table.assign(launches_spread=float("nan"), gpu_ns_spread=float("nan"))) == ("", "")


@pytest.mark.parametrize(
    ("launches", "time", "flag"), [(0.02, 0.1, ""), (0.021, 0.1, "launches"), (0.02, 0.101, "time")]
)
def test_what_is_at_the_bound_is_no_disagreement(launches: float, time: float, flag: str) -> None:
    assert explained(agreement().assign(launches_spread=launches, gpu_ns_spread=time))[0] == flag


@pytest.mark.parametrize(("more", "known"), [(299.0, False), (300.0, True), (1500.0, True), (1501.0, False)])
def test_what_a_launch_takes_longer_alone_has_bounds(more: float, known: bool) -> None:
    """1,000 launches that take 1 µs under nsys, and so many ns more under ncu."""
    flag, cause = explained(agreement(nsys_gpu_ns=1e6, ncu_gpu_ns=1e6 + 1e3 * more))
    assert flag == "time" and cause.startswith("under ncu each launch runs alone") == known


def test_the_least_of_the_other_tools_is_what_ncu_is_held_against() -> None:
    """5.0 and 5.8 µs by the others, 6.0 by ncu: 1.0 more than the least."""
    _, cause = explained(agreement(ncu_gpu_ns=6e6).assign(torch_gpu_ns=5.8e6))
    assert "takes 1.0 µs more, beside 5.0 µs" in cause
