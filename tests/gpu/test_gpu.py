"""What only a real GPU can show: the LSTM's fused path, and the three tools' agreement, through snakemake itself."""

import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from models import lstm
from profzoo.harness.step import step_loop
from tests.gpu.running import run_snakemake
from tests.stepwise import Stepwise

CUDA = torch.device("cuda")


def profiled(network: torch.nn.Module, sequence_length: int, train: bool = False) -> torch.profiler.profile:
    """One forward pass, in training with the backward one, the third."""
    shape = SimpleNamespace(**lstm.SHAPE | {"sequence_length": sequence_length})
    samples = [lstm.sample(shape, torch.Generator().manual_seed(index)) for index in range(4)]
    text, _ = lstm.transfer(lstm.collate(samples), CUDA)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    for _ in range(3):
        with torch.profiler.profile(activities=activities) as profiler:
            with torch.set_grad_enabled(train):
                scores = network(text)
            if train:
                scores.sum().backward()
            torch.cuda.synchronize()
    return profiler


def launches(network: torch.nn.Module, sequence_length: int) -> int:
    """Kernel launches of one forward pass."""
    events = profiled(network, sequence_length).events()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in events)


def operators(network: torch.nn.Module, sequence_length: int, train: bool) -> Counter[str]:
    events = profiled(network, sequence_length, train).events()
    return Counter(event.name for event in events if event.name.startswith("aten::"))


def fused(**shape: object) -> torch.nn.Module:
    """The zoo's LSTM as the harness prepares it."""
    network = lstm.build(SimpleNamespace(**lstm.SHAPE | shape)).to(CUDA)
    step_loop.prepare_network(network)
    return network.eval()


def test_launches_of_the_lstm_do_not_grow_with_the_sequence() -> None:
    network = fused()
    # cuDNN may take one kernel more or fewer for another length; a launch a step would be 96 more.
    assert launches(network, 128) <= launches(network, 32) + 3 < 20


def test_a_stepwise_lstm_would_fail_that() -> None:
    network = Stepwise().to(CUDA).eval()
    assert launches(network, 128) > 3 * launches(network, 32)


# Of the workloads. Of the wider one cuDNN itself may launch kernels for each step: what torch does may not grow.
@pytest.mark.parametrize("hidden", [64, 1024])
@pytest.mark.parametrize("train", [False, True])
def test_a_sequence_is_one_call_of_cudnn_whatever_its_length(hidden: int, train: bool) -> None:
    network = fused(hidden=hidden).train(train)
    short, long = operators(network, 32, train), operators(network, 128, train)
    assert short == long
    assert long["aten::_cudnn_rnn"] == 1 and long["aten::_cudnn_rnn_backward"] == train
    assert not long["aten::_cudnn_rnn_flatten_weight"]


@pytest.mark.parametrize("hidden", [64, 1024])
@pytest.mark.parametrize("train", [False, True])
def test_a_stepwise_lstm_is_none(hidden: int, train: bool) -> None:
    network = Stepwise(hidden).to(CUDA).train(train)
    short, long = operators(network, 32, train), operators(network, 128, train)
    assert not long["aten::_cudnn_rnn"] and long.total() > 3 * short.total()


@pytest.mark.parametrize("hidden", [64, 1024])
def test_weights_are_copied_together_only_where_they_are_scattered(hidden: int) -> None:
    network = fused(hidden=hidden)
    whole = operators(network, 16, train=False)
    for parameter in network.lstm.parameters():
        parameter.data = parameter.data.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scattered = operators(network, 16, train=False)
    # Two matrices and two biases.
    assert scattered["aten::copy_"] >= whole["aten::copy_"] + 4


@pytest.mark.parametrize("hidden", [64, 1024])
def test_weights_are_one_buffer_and_torch_does_not_warn(hidden: int) -> None:
    network = fused(layers=2, hidden=hidden)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launches(network, 16)
    for parameter in network.lstm.parameters():
        parameter.data = parameter.data.clone()
    with pytest.warns(UserWarning, match="contiguous"):
        launches(network, 16)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What snakemake makes of one cell under every tool, in a folder of its own."""
    folder = tmp_path_factory.mktemp("results")
    cell = f"{folder}/mobilenetv2/train"
    targets = [f"{cell}.{name}.csv" for name in ("nsys", "torch", "ncu", "ncu.traffic")]
    settings = ["models=mobilenetv2", f"pathvars={{results: {folder}}}"]
    settings.append("ncu={sets: {traffic: {metrics: [gpu__time_duration.sum, dram__bytes_read.sum]}}}")
    run_snakemake(*targets, "--config", *settings)
    return folder / "mobilenetv2"


def test_one_launch_of_each_configuration_and_none_is_lost(results: Path) -> None:
    census, distinct = (pd.read_csv(results / f"train.ncu.{name}.csv") for name in ("launch", "traffic"))
    assert distinct["launches"].sum() == len(census)
    assert distinct["launches"].notna().all()


def test_the_tools_count_the_same_launches(results: Path) -> None:
    nsys, torch_, ncu = (pd.read_csv(results / f"train.{name}.csv") for name in ("nsys", "torch", "ncu"))
    counts = [nsys["launches"].sum() / 10, torch_.loc[torch_["kind"] == "kernel", "count"].sum() / 3, len(ncu)]
    assert max(counts) - min(counts) <= 0.02 * max(counts)


def test_backward_launches_have_their_range(results: Path) -> None:
    for name, count in (("nsys", "launches"), ("torch", "count")):
        table = pd.read_csv(results / f"train.{name}.csv")
        table = table[table["range"].notna()]
        assert (
            table.loc[table["range"] == "backward", count].sum() > table.loc[table["range"] == "forward", count].sum()
        )
