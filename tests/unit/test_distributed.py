"""profzoo.harness.distributed: training on several processes, for real with gloo on this CPU, and what is refused."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch.distributed as dist

from profzoo import run
from profzoo.cell import settings
from profzoo.collect import multi_node, pod_nodes
from profzoo.config import configuration as config
from profzoo.errors import ConfigError
from profzoo.harness import distributed, interface, training_step
from tests import slow

PROJECT = Path(__file__).parents[2]
WORDS = ["train", "device=cpu", "gpus=2", "warmup=1", "window=2"]


def torchrun(*words: str) -> subprocess.CompletedProcess[str]:
    """The processes of a cell."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, "-m", "models.run", *words]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300)


def test_two_processes_train_together(tmp_path: Path) -> None:
    files = [word for name in ("facts", "steps", "save") for word in (f"--{name}", str(tmp_path / name))]
    done = torchrun("lstm", *WORDS, "sequence_length=8", "batch=3", *files)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "facts").read_text())
    assert facts["batch"] == 3 and facts["steps"] == 2 and facts["items"] == 2 * 2 * 3
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1] and all(rank["step_ns"] > 0 for rank in facts["ranks"])
    assert pd.read_csv(tmp_path / "steps")["items"].tolist() == [6, 6]
    # Buckets hold all gradients, of four bytes each.
    assert sum(facts["ranks"][0]["gradient_sync"]["bucket_bytes"]) == 4 * facts["parameters"]
    # One process says how it went, and its weights are those of the bare network.
    assert done.stdout.count("lstm train on 2 x CPU") == 1
    words = ["lstm", "inference", "device=cpu", "window=1", "warmup=0", "sequence_length=8"]
    assert run.main([*words, "--load", str(tmp_path / "save")]) == 0


@pytest.mark.parametrize("memory", slow.first([False, True]))
def test_what_averages_gradients_ends_before_the_group(
    memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that end it later wait for each other now and then."""
    made: list[weakref.ref] = []
    begin = training_step.Trainer.__init__

    def noted(trainer: training_step.Trainer, *given: object) -> None:
        begin(trainer, *given)
        made.append(weakref.ref(trainer))

    @contextlib.contextmanager
    def group(*given: object) -> Iterator[None]:
        yield
        assert made and not any(one() for one in made)

    monkeypatch.setattr(training_step.Trainer, "__init__", noted)
    monkeypatch.setattr(distributed, "join_group", group)
    more = ["--memory", str(tmp_path / "m.csv")] if memory else []
    assert run.main(["lstm", *WORDS[:2], *WORDS[3:], "sequence_length=8", "batch=3", *more]) == 0


def test_nobody_leaves_a_meeting_before_the_last_has_come() -> None:
    """Twice in a row, by three processes that share a store."""
    store, order = dist.HashStore(), list[str]()
    last = threading.Event()

    def attend(late: bool) -> None:
        for number in range(2):
            if late and number == 0:
                last.wait(60)
            order.append(f"comes {number}")
            distributed.meet(store, str(number), 3)
            order.append(f"leaves {number}")

    attending = [threading.Thread(target=attend, args=(number == 2,)) for number in range(3)]
    for thread in attending:
        thread.start()
    while order.count("comes 0") < 2:
        time.sleep(0.001)
    assert order == ["comes 0"] * 2
    last.set()
    for thread in attending:
        thread.join(60)
    assert len(order) == 12
    for number in range(2):
        assert max(at for at, word in enumerate(order) if word == f"comes {number}") < order.index(f"leaves {number}")


def test_windows_of_all_processes_open_after_their_meeting(tmp_path: Path) -> None:
    """A profiler that starts late in one process keeps the others waiting, before their windows open."""
    code = """
import os, sys, time
from profzoo import run
from profzoo.harness import recorders
begin = recorders.Recorder.start
def start(recorder, meet=None):
    def late():
        time.sleep(0.5 * int(os.environ["RANK"]))
        sys.stdout.write(f"arrives {time.monotonic_ns()}\\n")
        meet()
    begin(recorder, late)
    sys.stdout.write(f"opens {recorder.window_began_ns}\\n")
recorders.Recorder.start = start
sys.exit(run.main(sys.argv[1:]))
"""
    (tmp_path / "late.py").write_text(code)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = ["lstm", *WORDS, "sequence_length=8", "batch=3", "--facts", str(tmp_path / "facts")]
    environment = {**os.environ, "PYTHONPATH": f"{PROJECT}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [*launcher, str(tmp_path / "late.py"), *words],
        cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [line.split() for line in done.stdout.splitlines() if line.startswith(("arrives", "opens"))]
    times = {kind: [int(ns) for word, ns in told if word == kind] for kind in ("arrives", "opens")}
    assert len(times["arrives"]) == len(times["opens"]) == 2
    assert max(times["arrives"]) < min(times["opens"])


def test_a_model_of_several_networks_is_refused() -> None:
    done = torchrun("srgan", *WORDS, "batch=1", "size=16")
    assert (
        done.returncode and "profzoo: gpus = 2: srgan trains several networks in turn, on one GPU only" in done.stderr
    )


OWN_STEP = '''
import torch
import torch.distributed as dist
from torch import nn

WORKLOADS = {"trimmed": {"train": {"batch": 4}, "inference": {"batch": 4}}}


def build(shape):
    return nn.Linear(3, 1)


def sample(shape, generator):
    return torch.rand(3, generator=generator), torch.rand(1, generator=generator)


def training_step(trainer, batch):
    """Two passes before each update."""
    inputs, target = batch
    with trainer.forward():
        outputs = trainer.network(inputs) + trainer.network(-inputs)
    with trainer.loss():
        loss = (outputs - target).square().mean()
    trainer.update(loss, trainer.optimizers[0])
    assert same_everywhere(trainer.network.module.weight.detach()) and not same_everywhere(inputs)
    return loss


def same_everywhere(tensor):
    found = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(found, tensor.contiguous())
    return all(torch.equal(one, found[0]) for one in found)
'''


@pytest.mark.slow
def test_a_training_step_of_ones_own_with_one_network_is_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_step.py").write_text(OWN_STEP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    # The step itself looks: after each update the processes have the same weights, from different batches.
    done = torchrun("mine", *WORDS, "module=own_step")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("mine train on 2 x CPU") == 1


@pytest.mark.parametrize(
    "body", ["def others(shape):\n    return build(shape)\n", "def optimizers(network, others):\n    return ()\n"]
)
def test_several_networks_or_optimizers_in_turn_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    (tmp_path / "in_turn.py").write_text(f"{OWN_STEP}\n\n{body}")
    monkeypatch.syspath_prepend(str(tmp_path))
    cell = {"gpus": 2, "nodes": 1, "model": "mine"}
    model = interface.load_functions("in_turn")
    monkeypatch.delitem(sys.modules, "in_turn")
    with pytest.raises(ConfigError, match="gpus = 2: mine trains several networks in turn, on one GPU only"):
        distributed.check_shareable(cell, model)


def test_processes_have_to_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["lstm", *WORDS]) == 2
    assert "torchrun --standalone --nproc-per-node=2 -m models.run lstm" in capsys.readouterr().err


def test_batch_and_samples_count_for_each() -> None:
    given = config.normalise_config({"gpus": "2", "models": ["lstm"]})
    cell = settings.resolve_cell("lstm", "train", "time", given)
    assert cell["gpus"] == 2 and cell["samples"] == 2 * cell["batch"] * cell["steps"]
    assert settings.resolve_cell("lstm", "inference", "time", given)["gpus"] == 1
    with pytest.raises(ConfigError, match="batch = 'auto' is for one GPU, not 2"):
        settings.resolve_cell("lstm", "train", "time", given | {"batch": "auto"})


def test_cells_of_several_gpus_are_found() -> None:
    assert config.list_multi_gpu_cells(config.normalise_config({})) == []
    given = {"settings": {"unet": {"gpus": 2}}, "variants": {"one": {"gpus": 1}, "four": {"nodes": 4}}}
    found = config.list_multi_gpu_cells(config.normalise_config(given))
    assert {"unet", "unet@four", "lstm@four"} <= set(found) and not {"unet@one", "lstm", "lstm@one"} & set(found)


def test_nodes_are_started_by_slurm() -> None:
    command = multi_node.srun_words(2, 4, ["nsys", "profile"], "123456", "10.0.0.7")
    assert command[0] == "srun" and {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1"} <= set(command)
    at = command.index("torch.distributed.run")
    assert {"--nnodes=2", "--nproc-per-node=4", "--rdzv-endpoint=10.0.0.7:23456"} <= set(command[at:])
    assert command[-3:] == ["--no-python", "nsys", "profile"]


def test_nodes_without_slurm_are_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", pod_nodes.INDEX):
        monkeypatch.delenv(name, raising=False)
    assert multi_node.main(["2", "1", "true"]) == 1
    assert "nodes = 2 requires a Slurm job, or a Job of Kubernetes with as many pods" in capsys.readouterr().err
