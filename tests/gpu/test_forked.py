"""Forked processes use a GPU as processes that start by themselves do: same loss, memory and step time."""

import os
import statistics
from contextlib import closing
from pathlib import Path

import pytest
import torch

from profzoo.experiments.forked_runs import ProcessStarter
from tests.benchmarks import small_vit, trial_speed
from tests.unit.test_gpu_slots import PROJECT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible to torch here"),
]


@pytest.mark.parametrize("more", [[], ["graph=true", "precision=bf16"], ["compile=true"], ["workers=2"]])
def test_forks_measure_what_separate_processes_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]))
    words = trial_speed.cell_words(small_vit.__name__, "cuda", "deterministic=true", "batch=16", *more)
    facts = {}
    for fork in (True, False):
        with closing(ProcessStarter(fork)) as starter:
            each = [trial_speed.run_command(starter, words, tmp_path / f"{fork}{number}.csv")[1] for number in range(2)]
            assert starter.separate_why == ""
        facts[fork] = each
    same = ("loss", "parameters", "device", "device_uuid", "cudnn", "threads")
    for own in facts[True]:
        assert {key: own[key] for key in same} == {key: facts[False][0][key] for key in same}
        # Python collects garbage at other moments in a fork, and with it tensors that nothing holds any more.
        assert own["peak_memory_bytes"] == pytest.approx(facts[False][0]["peak_memory_bytes"], rel=0.001)
    one, other = (statistics.median(own["step_ns"] for own in facts[fork]) for fork in (True, False))
    # Clocks may move by a few percent between processes of either way.
    assert one == pytest.approx(other, rel=0.05)
