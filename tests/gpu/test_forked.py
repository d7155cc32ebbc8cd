"""Forked processes use a GPU as processes that start by themselves do: same loss, memory and step time."""

import os
import statistics
from contextlib import closing
from pathlib import Path

import pytest

from profzoo.experiments.forked_runs import ProcessStarter
from tests.benchmarks import small_vit, trial_speed
from tests.unit.test_gpu_slots import PROJECT

# Processes of each way.
PROCESSES = 3


@pytest.mark.parametrize("more", [[], ["graph=true", "precision=bf16"], ["compile=true"], ["workers=2"]])
def test_forks_measure_what_separate_processes_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]))
    words = trial_speed.cell_words(small_vit.__name__, "cuda", "deterministic=true", "batch=16", *more)
    facts: dict[bool, list[dict]] = {True: [], False: []}
    with closing(ProcessStarter(True)) as forking, closing(ProcessStarter(False)) as separate:
        # In turn, because the clocks of a GPU and the load of its host change within minutes.
        for number in range(PROCESSES):
            for fork, starter in ((True, forking), (False, separate)):
                own = trial_speed.run_command(starter, words, tmp_path / f"{fork}{number}.csv")[1]
                facts[fork].append(own)
        assert forking.separate_why == ""
    same = ("loss", "parameters", "device", "device_uuid", "cudnn", "threads")
    for own in facts[True]:
        assert {key: own[key] for key in same} == {key: facts[False][0][key] for key in same}
        # Python collects garbage at other moments in a fork, and with it tensors that nothing holds any more.
        assert own["peak_memory_bytes"] == pytest.approx(facts[False][0]["peak_memory_bytes"], rel=0.003)
    one, other = (statistics.median(own["step_ns"] for own in facts[fork]) for fork in (True, False))
    assert one == pytest.approx(other, rel=0.1), facts
