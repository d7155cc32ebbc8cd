"""Which launch of one tool's step is which of another's, on recordings of real tools."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.kernels import demangle
from profzoo.launches import cross_tool
from profzoo.launches.cross_tool import align_launches, aligned_shares, match_steps
from profzoo.launches.myers_diff import NONE
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.nsys import launches_by_step
from tests.conftest import DATA


@pytest.fixture(scope="module")
def ncu() -> pd.DataFrame:
    """A training step of U-Net under ncu, 345 launches on three streams, on an H100."""
    return pd.read_csv(DATA / "launches/unet.train.ncu.csv.gz")


@pytest.fixture(scope="module")
def torch() -> pd.DataFrame:
    """Three such steps under torch.profiler, in the order in which the CPU made the launches."""
    return pd.read_csv(DATA / "launches/unet.train.torch.csv.gz").sort_values("launched", ignore_index=True)


def test_names_are_demangled_as_torch_has_them(ncu: pd.DataFrame, torch: pd.DataFrame) -> None:
    assert demangle.can_demangle()
    assert set(ncu["mangled"].map(demangle.demangle)) == set(torch["kernel"])
    assert demangle.demangle("i") == "i" and demangle.demangle("_Znonsense") == "_Znonsense"


def test_each_step_of_torch_is_ncus_step_launch_by_launch(ncu: pd.DataFrame, torch: pd.DataFrame) -> None:
    found = match_steps(torch, ncu)
    assert found["launch"].tolist() == [*range(345)] * 3 and not found["ambiguous"].any()
    assert aligned_shares(found["launch"].notna(), torch["ns"]) == (1, 1)


@pytest.mark.parametrize("numbers", [{7: 7, 30: 30, 31: 31}, {7: 13, 30: 31, 31: 30}])
def test_streams_that_ran_side_by_side_are_aligned_each_for_itself(
    ncu: pd.DataFrame, torch: pd.DataFrame, numbers: dict[int, int]
) -> None:
    """By when they began, launches of three streams come in another order than they were made in."""
    began = torch.sort_values("start")
    began["stream"] = began["stream"].map(numbers)
    assert all((own.index != sorted(own.index)).any() for _, own in began.groupby("step"))
    found = match_steps(began, ncu)["launch"].sort_index()
    # Each is the launch that it is by the order in which they were made.
    assert (found == torch.groupby("step").cumcount()).all()


def test_names_that_cannot_be_demangled_are_told_apart_by_function(
    ncu: pd.DataFrame, torch: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demangle, "can_demangle", lambda: False)
    assert match_steps(torch, ncu)["launch"].tolist() == [*range(345)] * 3


@pytest.mark.parametrize("column", ["grid_x", "block_y", "smem_bytes", "kernel"])
def test_a_launch_that_differs_in_anything_is_another(ncu: pd.DataFrame, torch: pd.DataFrame, column: str) -> None:
    step = torch[torch["step"] == 0].copy()
    step.loc[100, column] = "other" if column == "kernel" else step.loc[100, column] + 1
    found = align_launches(step, ncu)
    assert found.partner[100] == NONE and (found.partner != NONE).sum() >= 340


def test_owners_of_torch_are_launches_too(ncu: pd.DataFrame, torch: pd.DataFrame) -> None:
    """Names there are called so, and are categories; a stream may be missing."""
    owners = torch.rename(columns={"kernel": "name"}).astype({"name": "category", "stream": "Int64"})
    owners.loc[3, "stream"] = pd.NA
    assert match_steps(owners, ncu)["launch"].tolist() == [*range(345)] * 3


def test_shared_memory_that_one_tool_does_not_tell_is_let_be(ncu: pd.DataFrame, torch: pd.DataFrame) -> None:
    step = torch[torch["step"] == 0]
    for other in (ncu.drop(columns="smem_dynamic_bytes"), ncu.assign(smem_dynamic_bytes=np.nan)):
        assert (align_launches(step, other).partner == np.arange(345)).all()


def test_streams_without_a_like_are_left_out(ncu: pd.DataFrame) -> None:
    """One stream's launches went to another kernel, so that nothing there is like it."""
    changed = ncu.copy()
    changed.loc[changed["stream"] == 30, "mangled"] = "other"
    found = align_launches(ncu, changed)
    assert ((found.partner == NONE) == (ncu["stream"] == 30)).all() and not found.ambiguous.any()


def test_streams_that_cannot_be_told_apart_are_left_out() -> None:
    """Two streams with the same launches, which have other numbers in the other run; like numbers would tell."""
    one = on_streams("xxyyzz", [1, 2] * 3)
    assert (align_launches(one, one.assign(stream=one["stream"] + 7)).partner == NONE).all()
    assert align_launches(one, one.iloc[[1, 3, 0, 2, 4, 5]]).partner.tolist() == [2, 0, 3, 1, 4, 5]


def on_streams(kernels: str, streams: list[int]) -> pd.DataFrame:
    """A launch of each of these kernels, on these streams."""
    columns = {"mangled": list(kernels), "kernel": "", **dict.fromkeys(cross_tool.GRID, 1)}
    return pd.DataFrame(columns).assign(stream=streams)


def test_streams_with_like_launches_are_told_apart_by_their_order() -> None:
    """Either runs x, x, y and z, in orders of their own, and has the other's number in the other run."""
    one = on_streams("xyxzzxyx", [1, 2, 1, 1, 2, 2, 1, 2])
    other = one.assign(stream=one["stream"].map({1: 2, 2: 1})).iloc[[1, 0, 4, 2, 3, 5, 7, 6]]
    assert align_launches(one, other).partner.tolist() == [1, 0, 3, 4, 2, 5, 7, 6]


def test_of_two_streams_that_one_could_be_neither_is_taken() -> None:
    assert (align_launches(on_streams("xxyyzz", [1, 2] * 3), on_streams("xyz", [5] * 3)).partner == NONE).all()
    assert (align_launches(on_streams("xyz", [5] * 3), on_streams("xxyyzz", [1, 2] * 3)).partner == NONE).all()


def test_no_launch_is_aligned_to_nothing(ncu: pd.DataFrame) -> None:
    assert align_launches(ncu, ncu.iloc[:0]).edits == len(ncu)
    assert match_steps(ncu.iloc[:0].assign(step=0), ncu).empty
    assert all(np.isnan(share) for share in aligned_shares(pd.Series([], dtype=bool), pd.Series([], dtype=float)))


@pytest.fixture(scope="module")
def traced(recording) -> pd.DataFrame:
    """Ten steps of MobileNetV2's training under nsys: 475 launches each, whose convolutions run in tf32."""
    path: Path = recording("nsys/train.sqlite")
    return launches_by_step.read_step_launches(path)


@pytest.fixture(scope="module")
def census(recording) -> pd.DataFrame:
    """A step of the same under ncu, of another version: 468 launches, whose convolutions run in fp32."""
    raw, units = ncu_tables.read_raw(recording("ncu/launch.raw.mangled.csv"))
    return ncu_tables.tidy_launches(
        raw, units, ncu_tables.read_raw(recording("ncu/launch.raw.demangled.csv"))[0], None
    )[0]


def test_steps_of_nsys_are_the_same_and_in_order(traced: pd.DataFrame) -> None:
    assert traced.groupby("step").size().tolist() == [475] * 10
    assert traced["start_ns"].is_monotonic_increasing and traced["stream"].eq(7).all()
    assert set(traced["range"]) == {"forward", "backward", "optimizer"}
    one = traced[traced["step"] == 3]
    assert (match_steps(traced, one)["launch"] == traced.groupby("step").cumcount()).all()


def test_kernels_around_other_convolutions_are_those_of_their_own_layer(
    traced: pd.DataFrame, census: pd.DataFrame
) -> None:
    """There are 52 batch norms in either, so that the k-th of one is the k-th of the other."""
    step = traced[traced["step"] == 0].reset_index(drop=True)
    found = align_launches(step, census)
    assert found.edits > 200
    for function in ("bn_fw_tr_1C11", "vectorized_elementwise", "bn_bw_1C11"):
        mine, its = (np.flatnonzero(frame["function"].str.startswith(function)) for frame in (step, census))
        known = mine[found.partner[mine] != NONE]
        assert len(known) > 0.6 * len(mine), function
        if function.startswith("bn"):
            assert len(mine) == len(its) == 52
            assert (np.searchsorted(mine, known) == np.searchsorted(its, found.partner[known])).all()
    ranges = (
        step["range"].to_numpy()[found.partner != NONE],
        census["range"].to_numpy()[found.partner[found.partner != NONE]],
    )
    assert pd.crosstab(*ranges).loc["forward"].drop(["forward", "loss"], errors="ignore").sum() == 0
