"""harness/recorders and harness/loop: which steps are recorded, and what the step loop sets and refuses."""

import gzip
import json
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from models import lstm
from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.errors import ConfigError
from profzoo.harness import interface, ranges, recorders, step_loop, training_step, window_length
from profzoo.io import csv_tables as reading
from profzoo.statistics import process_repeats
from profzoo.tools.time import tables as time_tables

CPU = torch.device("cpu")


def cell(name: str = "lstm", phase: str = "train", tool: str = "time", **given: object) -> dict:
    """A small cell."""
    small = {"sequence_length": 4, "batch": 2} if name == "lstm" else {"size": 32, "batch": 2, "classes": 10}
    general = {key: given.pop(key) for key in ("torch",) if key in given}
    return settings.resolve_cell(
        name, phase, tool, config.normalise_config({**general, "settings": {name: {**small, **given}}})
    )


def run(
    one: dict,
    recorder: recorders.Recorder,
    network: torch.nn.Module | None = None,
    timer: recorders.Recorder | None = None,
) -> step_loop.RunOutcome:
    """All steps of a cell on the CPU."""
    model = interface.load_functions(one["module"])
    return step_loop.run_steps(one, network or step_loop.make_network(one, model, CPU, None), CPU, recorder, timer)


class Counting(torch.nn.Module):
    """Counts its forward passes, and calls of `prepare`."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = lstm.build(SimpleNamespace(**lstm.SHAPE))
        self.forwards, self.prepared = 0, 0

    def forward(self, text: tuple) -> torch.Tensor:
        self.forwards += 1
        return self.inner(text)

    def prepare(self) -> None:
        self.prepared += 1


@pytest.mark.parametrize(("warmup", "window"), [(0, 1), (2, 3)])
def test_the_recorder_sees_the_window_only(warmup: int, window: int) -> None:
    recorder, network = recorders.Recorder(CPU), Counting()
    run(cell(warmup=warmup, window=window), recorder, network)
    assert recorder.steps == window and network.forwards == warmup + window
    assert recorder.window_wall_ns > 0 and recorder.step_ns > 0


def test_a_step_is_told_as_tables_have_it(tmp_path: Path) -> None:
    recorder = recorders.StepTimer(CPU, tmp_path / "steps.csv")
    run(cell(warmup=0, window=12), recorder, Counting())
    table = reading.read(tmp_path / "steps.csv", time_tables.TABLE)
    assert (
        recorder.step_ns
        == process_repeats.summarise_processes(process_repeats.processes(table)).mean_ns
        < table["wall_ns"].max()
    )


def test_a_window_grows_until_it_has_lasted(tmp_path: Path) -> None:
    one, recorder = cell(warmup=1, window=2), recorders.StepTimer(CPU, tmp_path / "steps.csv")
    recorder.least_s = 0.3
    run(one, recorder)
    assert recorder.steps == len(pd.read_csv(tmp_path / "steps.csv")) >= 2
    assert recorder.window_wall_ns >= 3e8


@pytest.mark.parametrize(("least_s", "steps"), [(0.0, 2), (0.1, 2), (0.11, 3), (0.3, 6), (1.0, 20)])
def test_a_window_grows_by_the_time_of_its_steps(least_s: float, steps: int) -> None:
    """Behind a step of warm-up, of steps that take 50 ms each."""
    clock = SimpleNamespace(wait=lambda: None, now=lambda: max(recorder.steps, 0) * 50_000_000)
    recorder = SimpleNamespace(least_s=least_s, steps=-1, window_began_ns=0, clock=clock)
    for index in window_length.step_indices(cell(warmup=1, window=2), recorder):
        recorder.steps += 1
        assert index == recorder.steps
    assert recorder.steps == steps


def test_the_profiler_is_not_there_while_the_baseline_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is made, started or marked until the last step of the baseline is over."""
    seen: list[tuple[str, int]] = []
    network = Counting()
    network.inner.register_forward_hook(
        lambda *_: seen.append((f"profiled {torch._C._autograd._profiler_enabled()}", network.forwards))
    )
    made = recorders.profile
    monkeypatch.setattr(recorders, "profile", lambda **given: seen.append(("made", network.forwards)) or made(**given))
    marked = ranges.record_function
    monkeypatch.setattr(
        ranges, "record_function", lambda name: seen.append(("marked", network.forwards)) or marked(name)
    )
    one = cell(tool="torch", warmup=2, window=2, torch={"baseline": 5, "warmup": 1})
    timer = recorders.StepTimer(CPU, tmp_path / "s.csv")
    files = tmp_path / "o.csv", tmp_path / "t.json.gz"
    outcome = run(one, recorders.TorchProfiler(CPU, one["profiler"], 2, *files), network, timer)
    assert timer.steps == 5 and network.forwards == 2 + 5 + 1 + 2 == one["steps"]
    assert ("made", 7) in seen and min(count for what, count in seen if what in ("made", "marked")) == 7
    # In the step of its own warm-up it only gets ready.
    profiled = [what for what, _ in seen if what.startswith("profiled")]
    assert profiled == ["profiled False"] * 8 + ["profiled True"] * 2
    assert outcome.baseline_loss != outcome.loss


def test_a_first_step_that_starts_profilers_up_does_not_count() -> None:
    recorder = recorders.Recorder(CPU)
    recorder.start()
    for pause in (0.2, 0.0, 0.0):
        time.sleep(pause)
        recorder.step(1)
    recorder.stop()
    assert recorder.window_wall_ns >= 200_000_000 and recorder.step_ns <= recorder.window_wall_ns - 200_000_000


class Lagging:
    """The clocks of a host and of a device that works through what it was given, in virtual time."""

    def __init__(self) -> None:
        self.host, self.done = 0, 0

    def give(self, host_ns: int, device_ns: int) -> None:
        """A step that the host takes so long to launch, and the device to carry out once the last launch is made."""
        self.host += host_ns
        self.done = max(self.done, self.host) + device_ns

    def now(self) -> int:
        return self.host

    def mark(self) -> int:
        return max(self.done, self.host)

    def between(self, first: int, last: int) -> float:
        return float(last - first)

    def wait(self) -> None:
        self.host = self.mark()


@pytest.mark.parametrize("window", [2, 10, 20])
@pytest.mark.parametrize(("host", "device"), [(3, 25), (25, 25), (25, 3)])
def test_a_step_takes_as_long_as_the_slower_of_host_and_device(host: int, device: int, window: int) -> None:
    clock = Lagging()
    recorder = recorders.Recorder(CPU, clock)
    recorder.start()
    for index in range(window):
        clock.give(host + 400 * (index == 0), device)
        recorder.step(1)
    recorder.stop()
    assert recorder.step_ns == max(host, device)
    assert recorder.window_wall_ns == clock.done


def test_step_timer_rows_add_up_to_the_window(tmp_path: Path) -> None:
    recorder = recorders.StepTimer(CPU, tmp_path / "s.csv")
    run(cell(warmup=1, window=3), recorder)
    table = pd.read_csv(tmp_path / "s.csv")
    assert tuple(table.columns) == recorders.STEP_COLUMNS and table["step"].tolist() == [0, 1, 2]
    assert table["items"].tolist() == [2, 2, 2]
    assert table["wall_ns"].sum() == recorder.window_wall_ns and (table["wall_ns"] > 0).all()
    assert table[["gpu_ns", "peak_memory_bytes"]].isna().all(axis=None)


@pytest.mark.parametrize(("wait", "warmup", "repeat"), [(0, 1, 1), (1, 0, 2), (2, 1, 2)])
def test_torch_profiler_follows_its_schedule(tmp_path: Path, wait: int, warmup: int, repeat: int) -> None:
    given = cell(tool="torch", warmup=1, window=2, torch={"wait": wait, "warmup": warmup, "repeat": repeat})
    assert given["steps"] == 1 + repeat * (wait + warmup + 2)
    recorder = recorders.TorchProfiler(
        CPU, given["profiler"], given["window"], tmp_path / "o.csv", tmp_path / "t.json.gz"
    )
    run(given, recorder)
    assert recorder.steps == 2 * repeat
    table = pd.read_csv(tmp_path / "o.csv").set_index("name")
    assert table.loc["profzoo:forward", "count"] == 2  # Of the last cycle.
    # Times are in ns, as the columns say: the trace of the same cycle has them in µs.
    with gzip.open(tmp_path / "t.json.gz", "rt") as file:
        opened = [e["dur"] for e in json.load(file)["traceEvents"]
                  if e.get("cat") == "user_annotation" and e["name"] == "profzoo:forward"]  # fmt: skip
    assert table.loc["profzoo:forward", "cpu_ns"] == pytest.approx(sum(opened) * 1000, abs=2)
    assert not [name for name in table if "time" in name] and table["cpu_ns"].dtype == "int64"


def test_prepare_is_called_after_weights_were_loaded_and_moved(tmp_path: Path) -> None:
    torch.save(Counting().state_dict(), tmp_path / "w.pt")
    model = SimpleNamespace(build=lambda shape: Counting())
    for weights in (None, tmp_path / "w.pt"):
        assert step_loop.make_network(cell(), model, CPU, weights).prepared == 1


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("phase", ["train", "inference"])
def test_lstm_runs_several_steps_in_every_mode(phase: str, packed: bool, stateful: bool) -> None:
    outcome = run(cell(phase=phase, packed=packed, stateful=stateful, warmup=0, window=3), recorders.Recorder(CPU))
    assert outcome.parameters == lstm.PARAMETERS


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_precision_is_what_the_network_computes_in(precision: str) -> None:
    seen = []
    given = cell("mobilenetv2", precision=precision, warmup=0, window=1)
    network = step_loop.make_network(given, interface.load_functions(given["module"]), CPU, None)
    network.features[0][0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    run(given, recorders.Recorder(CPU), network)
    assert seen == [training_step.AUTOCAST.get(precision, torch.float32)]
    assert torch.backends.cudnn.allow_tf32 == torch.backends.cuda.matmul.allow_tf32 == (precision == "tf32")


@pytest.mark.parametrize("channels_last", [False, True])
def test_channels_last_reaches_weights_and_images(channels_last: bool) -> None:
    seen = []
    given = cell("mobilenetv2", phase="inference", channels_last=channels_last, warmup=0, window=1)
    network = step_loop.make_network(given, interface.load_functions(given["module"]), CPU, None)
    first = network.features[0][0]
    first.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    run(given, recorders.Recorder(CPU), network)
    for tensor in (seen[0], first.weight):
        assert tensor.is_contiguous(memory_format=torch.channels_last) == channels_last


@pytest.mark.parametrize("phase", ["train", "inference"])
def test_eval_mode_and_gradients(phase: str) -> None:
    given = cell("mobilenetv2", phase=phase, warmup=0, window=1)
    network = step_loop.make_network(given, interface.load_functions(given["module"]), CPU, None)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    run(given, recorders.Recorder(CPU), network)
    changed = {key for key, value in network.state_dict().items() if not torch.equal(value, before[key])}
    assert ("features.0.1.running_mean" in changed and "classifier.1.weight" in changed) == (phase == "train")
    assert bool(changed) == (phase == "train")
    assert all(parameter.grad is None for parameter in network.parameters())


def test_data_that_ends_early_is_said() -> None:
    with pytest.raises(ConfigError, match="the data ended after 2 of 3 steps"):
        run({**cell(warmup=1, window=2), "samples": 4}, recorders.Recorder(CPU))


@pytest.mark.parametrize(
    "output",
    [torch.tensor([1.0, float("nan")]), [torch.ones(1), torch.tensor(float("inf"))], (torch.tensor(float("nan")),)],
)
def test_outputs_that_are_not_finite_are_refused(output: object) -> None:
    with pytest.raises(step_loop.NotFiniteError, match="holds NaN or infinity"):
        step_loop._finite([torch.ones(1), output], {"phase": "inference"})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_device_without_a_gpu(device: str) -> None:
    assert step_loop.choose_cell_device(cell(device=device)) == CPU


def test_of_inference_only_the_last_output_is_kept() -> None:
    seen, alive = [], []

    class Watched(Counting):
        def forward(self, text: tuple) -> torch.Tensor:
            seen.append(len(alive))
            output = super().forward(text)
            alive.append(1)
            weakref.finalize(output, alive.pop)
            return output

    run(cell(phase="inference", warmup=0, window=5), recorders.Recorder(CPU), Watched().eval())
    assert max(seen) == 1
