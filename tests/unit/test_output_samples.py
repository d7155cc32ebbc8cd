"""Samples of what a network gave."""

import torch

from profzoo.harness import output_samples
from profzoo.harness.output_samples import SAMPLE, sample_outputs


def test_samples_are_from_all_over_the_outputs() -> None:
    values = torch.arange(1000.0).reshape(10, 100)
    found = sample_outputs({"scores": values, "classes": torch.arange(5)})
    assert len(found) == SAMPLE and found[0] == 0 and found[-1] > 950 and found == sorted(found)
    assert sample_outputs(values.bfloat16()) == [float(torch.tensor(one).bfloat16()) for one in found]


def test_several_tensors_share_the_sample() -> None:
    found = sample_outputs([torch.zeros(3), torch.ones(1000), torch.zeros(0), torch.full((100,), 2.0)])
    assert {found.count(value) for value in (1.0, 2.0)} == {21} and found.count(0.0) == 3
    assert len(sample_outputs([torch.ones(2)] * 1 + [torch.ones(2) for _ in range(200)])) == SAMPLE


def test_outputs_without_numbers_have_none() -> None:
    assert sample_outputs(torch.arange(3)) == [] and sample_outputs(None) == []


def test_numbers_too_large_for_others_are_finite_where_they_are_doubles() -> None:
    assert output_samples.is_finite([torch.tensor([1e300], dtype=torch.float64), torch.tensor([1, 2])])
    assert not output_samples.is_finite({"a": torch.ones(2), "b": torch.tensor([1.0, float("inf")])})
