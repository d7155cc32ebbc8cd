"""Repeated calls on a real GPU, by the steps of the unit tests: dropout draws its random numbers on the GPU there."""

import pytest
import torch

from tests.unit import test_repeated_calls as steps


@pytest.mark.parametrize(("step", "right"), steps.WASTEFUL.items())
def test_equal_work_is_found(step: steps.Step, right: dict[str, int]) -> None:
    assert steps.found(step, "cuda") == right


@pytest.mark.parametrize("step", steps.NEEDED)
def test_calls_that_only_look_alike_are_not_told(step: steps.Step) -> None:
    assert steps.found(step, "cuda") == {}


def test_looking_makes_nothing_wait() -> None:
    """A look at a step reads the sums of results only after the step."""

    def waiting(network: torch.nn.Module, x: torch.Tensor) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            steps.frozen(network, x)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    assert steps.found(waiting, "cuda") == {"encoder": 3}
