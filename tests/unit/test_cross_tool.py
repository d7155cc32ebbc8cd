"""Which launch of one tool's step is which of another's: small steps by hand, and recordings of real tools."""

import itertools

import numpy as np
import pandas as pd
import pytest

from profzoo.kernels import kernel_classes
from profzoo.launches import cross_tool
from profzoo.launches.alignment import NONE
from profzoo.launches.cross_tool import align_launches, aligned_shares
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
    assert kernel_classes.can_demangle()
    assert set(ncu["mangled"].map(kernel_classes.demangle)) == set(torch["kernel"])
    assert kernel_classes.demangle("i") == "i" and kernel_classes.demangle("_Znonsense") == "_Znonsense"


def matches(steps: pd.DataFrame, step: pd.DataFrame) -> list[list[int]]:
    """The launch of the other step for each launch of each step."""
    return [align_launches(own, step).partner.tolist() for _, own in steps.groupby("step")]


def test_each_step_of_torch_is_ncus_step_launch_by_launch(ncu: pd.DataFrame, torch: pd.DataFrame) -> None:
    assert matches(torch, ncu) == [[*range(345)]] * 3


def test_names_that_cannot_be_demangled_are_told_apart_by_function(
    ncu: pd.DataFrame, torch: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_classes, "can_demangle", lambda: False)
    assert matches(torch, ncu) == [[*range(345)]] * 3


def test_owners_of_torch_are_launches_too(ncu: pd.DataFrame, torch: pd.DataFrame) -> None:
    owners = torch.rename(columns={"kernel": "name"}).astype({"name": "category", "stream": "Int64"})
    owners.loc[3, "stream"] = pd.NA
    assert matches(owners, ncu) == [[*range(345)]] * 3


def test_no_launch_is_aligned_to_nothing(ncu: pd.DataFrame) -> None:
    assert align_launches(ncu, ncu.iloc[:0]).edits == len(ncu)
    assert all(np.isnan(share) for share in aligned_shares(pd.Series([], dtype=bool), pd.Series([], dtype=float)))


def launches(kernels: str, **columns: object) -> pd.DataFrame:
    """A launch of each of these kernels, all in one configuration."""
    table = pd.DataFrame({"mangled": list(kernels), "kernel": list(kernels)})
    sizes = dict.fromkeys(cross_tool.GRID, 1)
    table = table.assign(**sizes, smem_static_bytes=0, smem_dynamic_bytes=0, function=table["kernel"], range="")
    return table.assign(**columns)


def test_launches_that_differ_in_anything_have_numbers_of_their_own() -> None:
    """All combinations of three names and three sizes in each of two dimensions and of shared memory."""
    rows = [*itertools.product("abc", (1, 2, 3), (1, 2, 3), (0, 16, 32))]
    columns = ["mangled", "grid_y", "block_x", "smem_dynamic_bytes"]
    first = launches("a" * len(rows)).assign(**dict(zip(columns, zip(*rows, strict=True), strict=True)))
    second = first.iloc[::-1].iloc[:50]
    codes, others = cross_tool.number_launch_keys(first, second)
    assert len(set(codes.tolist())) == len(rows) == 81 and len(others) == 50
    assert others.tolist() == codes[::-1][:50].tolist()


def test_shared_memory_is_the_sum_of_its_parts() -> None:
    parts = launches("aa").assign(smem_static_bytes=[10, 20], smem_dynamic_bytes=[20, 40])
    whole = parts.drop(columns=cross_tool.PARTS_OF_SMEM).assign(smem_bytes=[60, 30])
    assert align_launches(whole, parts.iloc[::-1]).partner.tolist() == [0, 1]
    # Where one is unknown of any launch, it tells none of them apart.
    untold = whole.drop(columns="smem_bytes")
    for unknown in (whole.assign(smem_bytes=[60, None]), whole.assign(smem_bytes=[None, 30]), untold):
        assert align_launches(unknown, parts).partner.tolist() == [0, 1]
    some = parts.assign(smem_dynamic_bytes=[20, None])
    assert align_launches(some, parts.assign(smem_static_bytes=99)).partner.tolist() == [0, 1]


def test_a_kernel_without_a_mangled_name_goes_by_its_other_name() -> None:
    first = launches("12", mangled=["_Z1av", ""], kernel=["a()", "b()"])
    second = launches("12", mangled=["_Z1av", "_Z1bv"], kernel=["a ( )", "b ( )"])
    assert align_launches(first, second).partner.tolist() == [0, 1]
    assert align_launches(second, first.assign(mangled=["", None])).partner.tolist() == [0, 1]


def on_streams(kernels: str, streams: str) -> pd.DataFrame:
    """A launch of each of these kernels, on the stream of the digit below it."""
    return launches(kernels, stream=[int(digit) for digit in streams])


@pytest.mark.parametrize(
    ("first", "second", "partners"),
    [
        # One stream is as long as it was, the other lost its second x: by streams alone either could be it.
        (("xyx", "121"), ("xy", "12"), [0, 1, NONE]),
        # Streams that have one launch in common are one, whatever their numbers.
        (("xyab", "1212"), ("yxcd", "8787"), [1, 0, NONE, NONE]),
        # Of two with as many launches in common, it is the one of the same number.
        (("xay", "112"), ("yax", "212"), [NONE, 1, 0]),
        # One stream, of which the other run made two: the one that has more of it.
        (("xyz", "555"), ("xyz", "112"), [0, 1, NONE]),
        (("xyz", "112"), ("xyz", "555"), [0, 1, NONE]),
        # Three streams in the one, of which two are in the other.
        (("xyzxyz", "123123"), ("zxzx", "5656"), [1, NONE, 0, 3, NONE, 2]),
        # Of two streams that one could be neither is taken, nor where both have the same launches and other numbers.
        (("xxyyzz", "121212"), ("xyz", "555"), [NONE] * 6),
        (("xyz", "555"), ("xxyyzz", "121212"), [NONE] * 3),
        (("xxyyzz", "121212"), ("xxyyzz", "898989"), [NONE] * 6),
        (("xxyyzz", "121212"), ("xyxyzz", "221112"), [2, 0, 3, 1, 4, 5]),
        # Either runs x, x, y and z, in orders of their own, and has the other's number in the other run.
        (("xyxzzxyx", "12112212"), ("yxzxzxxy", "12122112"), [1, 0, 3, 4, 2, 5, 7, 6]),
    ],
)
def test_streams_that_are_one(first: tuple[str, str], second: tuple[str, str], partners: list[int]) -> None:
    assert align_launches(on_streams(*first), on_streams(*second)).partner.tolist() == partners


def test_a_stream_that_is_too_unlike_leaves_the_others_alone() -> None:
    """One stream ran 5,100 launches that the other run did not make, which is beyond what is tried."""
    first = on_streams("x" * 5101 + "yzw", "1" * 5101 + "222")
    found = align_launches(first, on_streams("xyw", "122"))
    assert found.edits == NONE and (found.partner[:5101] == NONE).all()
    assert found.partner[5101:].tolist() == [1, NONE, 2] and found.of_second.tolist() == [NONE, 5101, 5103]


def test_edits_of_all_streams_count() -> None:
    found = align_launches(on_streams("abcdxyzw", "11112222"), on_streams("xwad", "2211"))
    assert found.edits == 4 and found.partner.tolist() == [2, NONE, NONE, 3, 0, NONE, NONE, 1]
    assert found.of_second.tolist() == [4, 7, 0, 3]


def test_coverage_of_launches_and_of_time() -> None:
    assert aligned_shares(pd.Series([True, False, False]), pd.Series([10, 20, 50])) == (1 / 3, 0.125)
    assert aligned_shares(pd.Series([True, True]), pd.Series([30, 30])) == (1, 1)
    share, time = aligned_shares(pd.Series([True, False]), pd.Series([0, 0]))
    assert share == 0.5 and np.isnan(time)
