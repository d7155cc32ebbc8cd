"""harness/distributed: training on several processes, for real with gloo on this CPU, with weights whole or split."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from models import bert
from profzoo import run
from profzoo.cell import settings
from profzoo.collect import multi_node, pod_nodes
from profzoo.config import configuration as config
from profzoo.errors import ConfigError
from profzoo.harness import distributed
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import step_loop, training_step
from tests.harness_cells import cell, functions

PROJECT = Path(__file__).parents[2]


WORDS = ["train", "device=cpu", "gpus=2", "warmup=1", "window=2"]


def torchrun(*words: str) -> subprocess.CompletedProcess[str]:
    """The processes of a cell."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "models.run"]
    return subprocess.run([*launcher, *words], cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300)


# Two processes by one that has imported torch, whose window opens late in the second, as if its profiler started slowly.
FORKED = """
import os, sys, time
import torch, torch._dynamo
from profzoo import run
from profzoo.harness.observers import recorders
from profzoo.machine import forks
torch.set_num_threads(1)
def delayed(begin):
    def start(recorder, meet):
        def late():
            time.sleep(0.5 * int(os.environ["RANK"]))
            os.write(1, f"arrives {time.monotonic_ns()}\\n".encode())
            meet()
        begin(recorder, late)
        os.write(1, f"opens {recorder.window_began_ns}\\n".encode())
    return start
for kind in (recorders.Recorder, recorders.StepTimer):
    kind.start = delayed(kind.start)
os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[1]}
children = []
for rank in "01":
    if not (child := os.fork()):
        os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
        forks.end_process(run.main(sys.argv[2:]))
    children.append(child)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def test_two_processes_train_together_and_their_windows_open_after_they_have_met(tmp_path: Path) -> None:
    files = [word for name in ("facts", "steps", "save") for word in (f"--{name}", str(tmp_path / name))]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [sys.executable, "-c", FORKED, port, "lstm", *WORDS, "sequence_length=8", "batch=3", *files]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300)
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
    # gloo may print its own words in front of them.
    times = {kind: [int(ns) for ns in re.findall(f"{kind} (\\d+)", done.stdout)] for kind in ("arrives", "opens")}
    assert len(times["arrives"]) == len(times["opens"]) == 2 and max(times["arrives"]) < min(times["opens"])


def test_nobody_leaves_a_meeting_before_the_last_has_come() -> None:
    """Twice in a row, by three processes that share a store."""
    store, order, last = dist.HashStore(), list[str](), threading.Event()

    def attend(late: bool) -> None:
        for number in "01":
            if late and number == "0":
                last.wait(60)
            order.append(f"comes {number}")
            distributed.meet(store, number, 3)
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
    for number in "01":
        assert "comes " + number not in order[order.index(f"leaves {number}") :]


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
def test_a_training_step_of_ones_own_is_spread_and_of_several_networks_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_step.py").write_text(OWN_STEP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    # The step itself looks: after each update the processes have the same weights, from different batches.
    done = torchrun("mine", *WORDS, "module=own_step")
    assert done.returncode == 0 and done.stdout.count("mine train on 2 x CPU") == 1, done.stderr
    done = torchrun("srgan", *WORDS, "batch=1", "size=16")
    said = "profzoo: gpus = 2: srgan trains several networks in turn, on one GPU only"
    assert done.returncode and said in done.stderr


@pytest.mark.parametrize("more", [{"others": lambda shape: None}, {"optimizers": lambda network, others: ()}])
def test_several_networks_or_optimizers_in_turn_are_refused(more: dict[str, Any]) -> None:
    distributed.check_shareable(cell(), functions(**more))
    distributed.check_shareable(cell(gpus=2), functions())
    with pytest.raises(ConfigError, match="gpus = 2: m trains several networks in turn, on one GPU only"):
        distributed.check_shareable(cell(gpus=2), functions(**more))


def test_gradients_are_sent_in_the_last_pass_of_a_step(tmp_path: Path) -> None:
    """The one process of a group counts what it would send."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        network, sent = DistributedDataParallel(nn.Linear(3, 1)), list[int]()
        network.register_comm_hook(None, lambda state, bucket: (sent.append(1), done(bucket.buffer()))[1])
        model = functions(loss=lambda outputs, target: (outputs - target).square().mean())
        trainer = training_step.Trainer(cell(accumulate=3), model, nn.Linear(3, 1), CPU, Ranges())
        trainer.network = network
        training_step.run_training_step(trainer, [(torch.rand(2, 3), torch.rand(2, 1))] * 3)
    finally:
        dist.destroy_process_group()
    assert len(sent) == 1
    with distributed.keep_gradients(nn.Linear(1, 1)):
        pass


def done(value: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Return a future that has this value already."""
    found = torch.futures.Future[torch.Tensor]()
    found.set_result(value)
    return found


def test_processes_have_to_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["lstm", *WORDS]) == 2
    assert "torchrun --standalone --nproc-per-node=2 -m models.run lstm" in capsys.readouterr().err


def test_batch_and_samples_count_for_each() -> None:
    given = config.normalise_config({"gpus": "2", "models": ["lstm"]})
    one = settings.resolve_cell("lstm", "train", "time", given)
    assert one["gpus"] == 2 and one["samples"] == 2 * one["batch"] * one["steps"]
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


CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize(("device", "asked"), [(CPU, ("gloo", None)), (GPU, ("nccl", GPU))])
def test_processes_meet_by_what_their_device_takes(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, asked: tuple
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(torch.cuda, "set_device", said.append)
    monkeypatch.setattr(dist, "init_process_group", lambda kind, device_id: said.append((kind, device_id)))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: said.append("over"))
    monkeypatch.setattr(dist, "barrier", lambda: said.append("met"))
    for one in (cell(), cell(gpus=2)):
        assert said == []
        with distributed.join_group(one, device):
            distributed.wait_for_all(one)
    assert said == [*[device] * (device is GPU), asked, "met", "over"]


def test_numbers_of_processes_are_torchruns(monkeypatch: pytest.MonkeyPatch) -> None:
    two, names = cell(gpus=2, nodes=2), ("WORLD_SIZE", "RANK", "LOCAL_RANK")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert distributed.read_rank(cell()) == distributed.read_local_rank(cell()) == 0
    for name, value in zip(names, "431", strict=True):
        monkeypatch.setenv(name, value)
    assert (distributed.read_rank(two), distributed.read_local_rank(two)) == (3, 1)
    with pytest.raises(ConfigError, match="take 1 processes, and 4 started"):
        distributed.read_rank(cell())
    share = distributed.make_sampler([0] * 10, two)  # type: ignore[arg-type]
    assert share and share.shuffle and share.drop_last and (share.rank, share.num_replicas, share.seed) == (3, 4, 1)
    assert distributed.make_sampler([0] * 10, cell(gpus=1)) is None  # type: ignore[arg-type]
    assert distributed.gather_facts(cell(), {"a": 1}) == [{"a": 1}]
    monkeypatch.setattr(step_loop.devices, "choose_device", lambda asked, number: torch.device("cuda", number))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="torch sees 1: lower gpus"):
        step_loop.choose_cell_device({**two, "device": "cuda"})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert step_loop.choose_cell_device({**two, "device": "cuda"}) == torch.device("cuda", 1)


SIZES = ["hidden=32", "heads=2", "layers=2", "vocabulary=97", "tokens=8", "dropout=0", "batch=2"]


SPLIT_WORDS = ["train", "device=cpu", "warmup=2", "window=1", *SIZES]


# Every process has the same batch, so that the mean over processes is what one of them computes.
SAME = """


class Same(torch.utils.data.Dataset):
    def __init__(self, shape):
        self._one = sample(shape, torch.Generator().manual_seed(1))

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return self._one


def dataset(shape):
    return Same(shape)
"""


def trained(folder: Path, name: str, *words: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Facts and weights after training; on two processes if the words say so."""
    files = ["--facts", str(folder / f"{name}.json"), "--save", str(folder / f"{name}.pt")]
    command = ["mine", *SPLIT_WORDS, *words, *files]
    assert (torchrun(*command).returncode if "gpus=2" in words else run.main(command)) == 0
    return json.loads((folder / f"{name}.json").read_text()), torch.load(folder / f"{name}.pt", weights_only=True)


@pytest.mark.slow
def test_split_weights_compute_what_one_process_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "same_batch.py").write_text((PROJECT / "models" / "gpt.py").read_text() + SAME)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    # Gradients are clipped, and weights averaged, where they are split and where they are not.
    more = ["module=same_batch", "clip=0.1", "accumulate=2", "ema=0.9"]
    one, alone = trained(tmp_path, "one", *more)
    for kind, batches in (("fsdp", 2), ("tensor", 1), ("pipeline", 1)):
        found, weights = trained(tmp_path, kind, *more, "gpus=2", f"parallel={kind}")
        assert found["parameters"] == one["parameters"] and found["items"] == batches * one["items"]
        for name in ("losses", "gradient_norms"):
            ours, theirs = (torch.tensor(facts["first_steps"][name]) for facts in (found, one))
            assert torch.allclose(ours, theirs, rtol=1e-5), (kind, name)
        assert found["first_steps"]["used_parameters"] == one["first_steps"]["used_parameters"]
        assert weights.keys() == alone.keys()
        assert all(torch.allclose(weights[name], alone[name], atol=1e-5) for name in alone), kind


def test_blocks_are_what_fsdp_gathers_together() -> None:
    shape = SimpleNamespace(**bert.SHAPE | {"hidden": 8, "heads": 2, "layers": 3, "vocabulary": 11})
    network = bert.build(shape)
    units = distributed.find_units(network)
    assert [part for part in units if isinstance(part, nn.TransformerEncoderLayer)] == [*network.encoder.layers]
    # Shared weights belong to no block, as another one uses them too.
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    assert distributed.find_units(tied) == [tied[2]]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (None, "lstm has no plan of how its layers are split: define split(network) in its file"),
        ({"other": "columns"}, "split(network) names 'other', which is not a linear layer"),
        ({"0": "cols"}, "split(network) says 'cols' of 0: say columns or rows"),
        ({"0": "rows"}, "the 3 rows of 0 cannot be split evenly over 2 processes"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan: dict[str, str] | None, why: str) -> None:
    model = functions(split=plan and (lambda network: plan))
    with pytest.raises(ConfigError, match=re.escape(why)):
        distributed.tensor_plan(nn.Sequential(nn.Linear(3, 4)), cell(gpus=2, model="lstm", parallel="tensor"), model)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpus": 1}, " splits the network over several GPUs: set gpus to 2 or more"),
        ({"precision": "fp16"}, " and precision: fp16 cannot be combined"),
        ({"channels_last": True}, " and channels_last: true cannot be combined"),
    ],
)
def test_settings_that_exclude_splitting_are_refused(changes: dict[str, Any], why: str) -> None:
    given = config.normalise_config({"settings": {"lstm": {"gpus": 2, "parallel": "fsdp", **changes}}})
    with pytest.raises(ConfigError, match=f"parallel: fsdp{why}"):
        settings.resolve_cell("lstm", "train", "time", given)


def test_samples_count_for_each_batch() -> None:
    given = config.normalise_config({"gpus": "2", "parallel": "tensor"})
    one = settings.resolve_cell("bert", "train", "time", given)
    assert one["parallel"] == "tensor" and one["samples"] == one["batch"] * one["steps"]
    # A cell as before has no such key, so that its results stay valid.
    assert "parallel" not in settings.resolve_cell("bert", "inference", "time", given)
    assert "parallel" not in settings.resolve_cell("bert", "train", "time", given | {"parallel": "ddp"})


def test_split_and_whole_weights_are_updated_apart() -> None:
    class Split(nn.Parameter):
        def full_tensor(self) -> torch.Tensor:
            return self.data

    weights = [nn.Parameter(torch.zeros(1)), Split(torch.zeros(2)), nn.Parameter(torch.zeros(3))]
    optimizer = distributed.separate_groups(torch.optim.AdamW(weights, lr=0.5))
    assert [[one.numel() for one in group["params"]] for group in optimizer.param_groups] == [[1, 3], [2]]
    assert all(group["lr"] == 0.5 for group in optimizer.param_groups)
