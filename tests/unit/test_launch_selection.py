"""selection: which launches ncu profiles by its words, and what of a window that is, by hand."""

import pandas as pd
import pytest

from profzoo.config import configuration as config
from profzoo.errors import DataError
from profzoo.tools.ncu import launch_selection
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.launch_sampling import RunPrices
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS


def census() -> pd.DataFrame:
    """Kernel a with two grids, of which it has three launches and one, between launches of b."""
    table = pd.DataFrame({"mangled": list("abaab"), GPU_TIME: [10.0, 20.0, 30.0, 15.0, 25.0], "range": "forward"})
    table = table.assign(**dict.fromkeys(KEYS[1:], 1))
    table.loc[3, "grid_x"] = 2
    return table


EACH = ["--filter-mode", "per-launch-config", "--kernel-name-base", "mangled"]


@pytest.mark.parametrize(
    ("words", "places"),
    [
        ([*EACH, "--kernel-id", ":::^(1)$"], [0, 1, 3]),
        ([*EACH, "--kernel-id", ":::^(2)$"], [2, 4]),
        ([*EACH, "--kernel-id", ":::^(1|2)$"], [0, 1, 2, 3, 4]),
        # By kernel and invocation, whatever the grid.
        (["--kernel-name-base", "mangled", "--kernel-id", "::regex:^(a)$:^(3)$"], [3]),
        (["--kernel-name-base", "mangled", "--kernel-id", "::regex:^(a|b)$:^(1|2)$"], [0, 1, 2, 4]),
        ([*EACH, "--launch-count", "1"], [0, 1, 3]),
        ([*EACH, "--launch-count", "1", "--kernel-name", "regex:a"], [0, 3]),
        (["--kernel-name-base", "mangled", "--kernel-name", "regex:b"], [1, 4]),
        (["--kernel-name-base", "mangled"], [0, 1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_what_ncu_profiles_by_its_words(words: list[str], places: list[int]) -> None:
    assert launch_selection.profiled_launches(census(), words).index.tolist() == places


def options(**given: object) -> dict:
    return config.normalise_config({"ncu": given})["ncu"]


def test_shares_are_of_the_time_of_all_launches() -> None:
    """Of 100 ns, kernel a takes 55; its two configurations have 40 and 15."""
    every, asked = census(), options(kernel_name="a")
    some = launch_selection.select_candidates(asked, "roofline", every)
    assert some.index.tolist() == [0, 2, 3]
    whole = launch_selection.select_configured(asked, "roofline", some, every)
    assert (whole.launches, whole.configurations, whole.share) == (2, 2, 0.55)
    sampled = launch_selection.select_sample(asked, "roofline", some, every, RunPrices(5.0, 0.2, 3), one_run=True)
    assert sampled.share == 0.55 and sampled.configurations == 2
    counted = launch_selection.select_all(asked, some, every)
    assert (counted.launches, counted.configurations, counted.share, counted.error) == (3, 2, 0.55, 0.0)
    assert counted.options == ["--kernel-name-base", "mangled", "--kernel-name", "regex:a"]
    first = launch_selection.select_configured(options(launches=2), "roofline", every, every)
    assert (first.launches, first.configurations, first.share) == (2, 2, 0.3)


def test_the_kernels_that_take_longest_are_paid_for_first() -> None:
    """b takes 45 of 100 ns, a with its first grid 40, with its second, at its third invocation, which b has not, 15."""
    every = census()
    found = [launch_selection.select_within_budget(every, every, paid) for paid in (1, 2, 3)]
    assert [one.share for one in found] == [0.45, 0.85, 1.0]
    assert [one.launches for one in found] == [1, 2, 3]


def test_a_name_that_no_kernel_has_is_an_error() -> None:
    asked = options(kernel_name="zzz")
    with pytest.raises(DataError, match=r"ncu\.kernel_name = 'zzz' matches none of the cell's kernels"):
        launch_selection.select_configured(
            asked, "roofline", launch_selection.select_candidates(asked, "roofline", census()), census()
        )


def test_configurations_that_were_profiled_more_or_less_often() -> None:
    taken, expected = census().iloc[[0, 1, 1]], census().iloc[[0, 1, 3]]
    found = {(key[0], key[1]) for key in launch_selection.differing_configurations(taken, expected)}
    assert found == {("b", 1), ("a", 2)}
