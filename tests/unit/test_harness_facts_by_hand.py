"""What a run says of itself, and processes to each other: facts, devices, ranges of modules, rounds, locks, shifts."""

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from profzoo.errors import CollectError, ConfigError
from profzoo.experiments import interleaved_runs
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.harness import (
    devices,
    distributed,
    interface,
    measure,
    module_ranges,
    recorders,
    safe_inspection,
    step_loop,
    training_step,
)
from profzoo.machine import file_locks, gpu_slots, gpu_turns, gpus, results_lock, time_slicing
from profzoo.machine.gpu_slots import LockTerms
from tests.unit.test_fed_by_hand import cell
from tests.unit.test_harness_numbers import counted

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def test_facts_of_one_process_are_those_of_its_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = counted(tmp_path, monkeypatch, "counting_facts", "warmup=2", "window=3", "threads=1")
    # A line of two inputs and a bias; batches of three; the loss of step n is n.
    told = {key: facts[key] for key in ("parameters", "batch", "steps", "items", "loss", "threads", "shifts")}
    assert told == {"parameters": 3, "batch": 3, "steps": 3, "items": 9, "loss": 5, "threads": 1, "shifts": 1}
    assert (
        facts["device"] == "CPU, 1 threads"
        and facts["device_type"] == "cpu"
        and facts["input"] == {"from": "sample", "pool": 6}
    )
    assert [facts[key] for key in ("cuda", "cudnn", "device_uuid", "peak_memory_bytes")] == [None] * 4
    assert not facts.keys() & {"ranks", "baseline", "outputs", "memory"} and facts["peak_rss_bytes"] > 50 << 20
    with (tmp_path / "s.csv").open() as file:
        walls = [int(row["wall_ns"]) for row in csv.DictReader(file)]
    assert facts["window_wall_ns"] == sum(walls) and facts["window_began_ns"] > 0 and 0 < facts["step_ns"] <= max(walls)


def test_a_baseline_is_told_beside_the_window_and_memory_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [
        "--trace",
        str(tmp_path / "t.json.gz"),
        "--operators",
        str(tmp_path / "o.csv"),
        "--memory",
        str(tmp_path / "m.csv"),
    ]
    given = ["warmup=1", "window=2", "profiler.baseline=2", "profiler.wait=0", "profiler.warmup=1", "profiler.repeat=1"]
    facts = counted(tmp_path, monkeypatch, "counting_beside", *given, *files)
    assert "ranks" not in facts and "ranks" not in facts["baseline"]
    assert (facts["steps"], facts["baseline"]["steps"], facts["baseline"]["items"]) == (2, 2, 6)
    assert facts["baseline"]["loss"] == 3 and facts["loss"] == 6
    assert facts["memory"]["allocator_peak_bytes"] is None and facts["memory"]["wall_ns"] > 0
    with (tmp_path / "m.csv").open() as file:
        (step, *_) = csv.DictReader(file)
    # Two weights and a bias, and the two moments and the count of steps of each, of four bytes.
    assert (step["range"], step["order"]) == ("step", "0") and int(step["weights_bytes"]) == 12
    assert int(step["optimizer_bytes"]) == 2 * 12 + 2 * 4 and int(step["inputs_bytes"]) == 3 * 2 * 4 + 3 * 8


def test_only_the_first_process_writes_unless_all_are_traced(tmp_path: Path) -> None:
    options = argparse.Namespace(trace=tmp_path / "t", operators=tmp_path / "o", steps=tmp_path / "s", ranks=None)
    one = cell(window=2, profiler={"baseline": 3, "modules": False})

    def kinds(rank: int, one: dict, options: argparse.Namespace) -> list[type | None]:
        return [watching and type(watching) for watching in measure._watching(one, options, rank, CPU)]

    assert kinds(0, one, options) == [recorders.StepTimer, recorders.TorchProfiler]
    assert kinds(1, one, options) == [recorders.Recorder, recorders.Recorder]
    without = {**one, "profiler": {"baseline": 0, "modules": False}}
    assert kinds(0, without, options) == [None, recorders.TorchProfiler] and kinds(1, without, options) == [
        None,
        recorders.Recorder,
    ]
    options.ranks = tmp_path
    assert kinds(0, one, options) == [recorders.StepTimer, recorders.TorchProfiler]
    assert kinds(1, one, options) == [recorders.Recorder, recorders.TorchProfiler]
    assert [path.name for path in measure._profiled_files(options, 1)] == [
        f"{platform.node()}.1.{ending}" for ending in ("operators.csv", "trace.json.gz")
    ]
    options.trace = None
    assert kinds(0, one, options) == [None, recorders.StepTimer] and kinds(1, one, options) == [
        None,
        recorders.Recorder,
    ]
    options.steps = None
    assert kinds(0, one, options) == [None, recorders.Recorder]


def test_facts_of_several_processes_name_each(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = SimpleNamespace(steps=4, peak_memory_bytes=5, peak_rss_bytes=6, step_ns=7, shifts=1)
    outcome = step_loop.RunOutcome(1, 2.0, 3.0, [], {}, None)  # type: ignore[typeddict-item]
    for ranks, told in (([{"rank": 0}], False), ([{"rank": 0}, {"rank": 1}], True)):
        found = measure._baseline(cell(gpus=2), timer, outcome, ranks)  # type: ignore[arg-type]
        # Batches of three of two processes.
        assert (found["items"], found["loss"], found["peak_memory_bytes"], found["step_ns"]) == (24, 3.0, 5, 7)
        assert ("ranks" in found) == told
    on_gpu = {"get_device_name": lambda device: "H100"}
    for name, value in on_gpu.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(devices, "read_uuid", lambda device: "GPU-1")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 9)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    told_gpu = devices.describe_machine("auto", GPU)
    assert [told_gpu[key] for key in ("device", "device_type", "device_uuid", "device_why", "cuda", "cudnn")] == [
        "H100", "cuda", "GPU-1", None, "13.0", 9,
    ]  # fmt: skip
    assert devices.describe_machine("cpu", CPU)["cuda"] is None


# Devices.


FOUND = [{"gpu": "A", "driver": "579.1", "gpu_uuid": "GPU-1"}, {"gpu": "A", "driver": "580.1", "gpu_uuid": "GPU-2"}]


@pytest.mark.parametrize(
    ("asked", "found", "visible", "said"),
    [
        ("auto", [], None, None), ("cpu", FOUND, None, None), ("auto", FOUND, "-1", None),
        ("cuda", [], None, "^device = 'cuda', but torch"), ("auto", [], "0", "and CUDA_VISIBLE_DEVICES = '0' names one, but"),
        ("auto", FOUND, None, "and nvidia-smi shows A, but .* driver 579.1 is too old for CUDA 13.0"),
        ("auto", FOUND, "1", r"shows A, but torch .* \(CUDA 13.0\) sees no GPU: why not;"),
    ],
)  # fmt: skip
def test_a_gpu_that_torch_cannot_use_is_told(
    monkeypatch: pytest.MonkeyPatch, asked: str, found: list[dict], visible: str | None, said: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(gpus, "query_nvidia_smi", lambda: (found, "" if found else "none is there"))
    monkeypatch.setattr(devices, "read_torch_reason", lambda: "why not")
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(gpus.VISIBLE, visible)
    if said:
        with pytest.raises(ConfigError, match=said):
            devices.choose_device(asked)
        return
    assert devices.choose_device(asked) == CPU
    why = {"auto": f"CUDA_VISIBLE_DEVICES = '{visible}' hides A", "cpu": "device = cpu, though A is here"}
    assert devices.explain_cpu(asked, CPU) == (why[asked] if found else "no GPU found: none is there")
    assert devices.explain_cpu(asked, GPU) is None and devices.read_uuid(CPU) is None


def test_a_gpu_is_taken_by_its_number_and_named_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.choose_device("auto", 3) == torch.device("cuda", 3) and devices.choose_device("cuda") == GPU
    for given in ("GPU-1a", "1a"):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=given))  # noqa: B023
        assert devices.read_uuid(GPU) == "GPU-1a"
    for error, said in ((RuntimeError("No driver. Get one at x"), "No driver"), (AssertionError(""), "AssertionError"),
                        (RuntimeError("a\nb"), "a")):  # fmt: skip

        def init(error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(torch.cuda, "init", init)
        assert devices.read_torch_reason() == said


# What is read without failing.


def test_what_cannot_be_read_is_a_warning_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def look() -> int:
        raise ValueError("first\nsecond")

    def silent() -> int:
        raise KeyError

    assert safe_inspection.attempt("it", lambda: 5, 6) == 5 and safe_inspection.attempt("it", look, 6) == 6
    assert safe_inspection.attempt("it", silent, 7) == 7
    assert capsys.readouterr().err == "Warning: it: ValueError: first\nWarning: it: KeyError: no message\n"
    parts = {layout: list(safe_inspection.strided_tensors(torch.eye(4).to_sparse(layout=layout, **more))) for layout, more in (
        (torch.sparse_coo, {}), (torch.sparse_csr, {}), (torch.sparse_csc, {}), (torch.sparse_bsr, {"blocksize": (2, 2)}),
    )}  # fmt: skip
    # Four ones: an index of two rows and values; pointers to five places, four columns, values; two blocks.
    assert [[tuple(one.shape) for one in some] for some in parts.values()] == [
        [(2, 4), (4,)], [(5,), (4,), (4,)], [(5,), (4,), (4,)], [(3,), (2,), (2, 2, 2)],
    ]  # fmt: skip
    assert list(safe_inspection.strided_tensors(nn.LazyLinear(2).weight)) == []


# What models leave out.


def test_functions_that_a_model_leaves_out_have_defaults() -> None:
    (optimizer,) = [interface.make_adam(nn.Linear(1, 1).parameters())]
    assert type(optimizer) is torch.optim.Adam and optimizer.defaults["lr"] == 0.001
    scores, target = torch.zeros(2, 4), torch.tensor([0, 1])
    assert float(interface.default_loss(scores, target)) == pytest.approx(torch.log(torch.tensor(4.0)).item())
    own = torch.tensor(7.0)
    for outputs in ({"loss": own}, SimpleNamespace(loss=own)):
        assert interface.default_loss(outputs, None) is own
    for outputs in ({"loss": None}, SimpleNamespace(), 5):
        with pytest.raises(ConfigError):
            interface.default_loss(outputs, target)
    line = nn.Linear(1, 1)
    assert (
        interface.whole_network(line) == (line,) and len(list(interface.no_others(SimpleNamespace()).parameters())) == 0
    )


# Ranges of modules.


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = nn.Sequential(nn.Tanh(), self.a)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(inputs))


def test_each_call_of_a_module_has_a_range_within_that_of_its_caller() -> None:
    said: list[str] = []

    def opener(name: str, inputs: tuple[Any, ...]) -> Any:
        said.append(f"+{name}")
        return lambda: said.append(f"-{name}")

    network = Nested()
    module_ranges.mark_modules(network, opener)
    network(torch.ones(1, 2))
    by = [word.rpartition(":") for word in said]
    paths = [f"{first[0]}{first.split(':')[1]}" for first, _, _ in by]
    # a goes by its first name, also where b holds it.
    assert paths == [
        f"{said[0][0]}{said[0].split(':')[1]}",
        "+a",
        "-a",
        "+b",
        "+b.0",
        "-b.0",
        "+a",
        "-a",
        "-b",
        paths[-1],
    ]
    assert by[0][2] == "Nested" and by[1][2] == "Linear" and paths[0][1:] == paths[-1][1:]
    said.clear()
    with pytest.raises(RuntimeError):
        network(torch.ones(1, 3))
    assert [word[0] for word in said] == ["+", "+", "-", "-"]


def test_only_encoder_layers_in_inference_are_marked_within_their_forward() -> None:
    def marked(network: nn.Module) -> list[bool]:
        module_ranges.mark_modules(network, lambda name, inputs: lambda: None)
        return ["forward" in vars(one) for one in (network, *network.children())][:2]

    def layer() -> nn.Module:
        return nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    assert marked(layer().eval()) == [True, True] and marked(layer().train()) == [False, False]
    assert marked(Nested().eval()) == marked(Nested().train()) == [False, False]
    wrapped = nn.Module()
    wrapped._fsdp_wrapped_module = nn.Linear(1, 1)
    listed = nn.ModuleDict({"x": nn.ModuleList([wrapped])})
    # What only holds others is never called, and what stands for another goes by its path.
    assert [(path, type(one)) for path, one, _ in module_ranges._walk(listed, "", set())] == [("x.0", nn.Linear)]
    assert [path for path, *_ in module_ranges._walk(listed, "others", set())] == ["others.x.0"]


# Several processes, and memory.


@pytest.mark.parametrize(("device", "asked"), [(CPU, ("gloo", None)), (GPU, ("nccl", GPU))])
def test_processes_meet_by_what_their_device_takes(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, asked: tuple
) -> None:
    said: list[Any] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda one: said.append(one))
    own = distributed.dist
    monkeypatch.setattr(own, "init_process_group", lambda kind, device_id: said.append((kind, device_id)))
    monkeypatch.setattr(own, "destroy_process_group", lambda: said.append("over"))
    monkeypatch.setattr(own, "barrier", lambda: said.append("met"))
    with distributed.join_group(cell(gpus=2), device):
        distributed.wait_for_all(cell(gpus=2))
    assert said == [*[device] * (device is GPU), asked, "met", "over"]
    said.clear()
    with distributed.join_group(cell(), device):
        distributed.wait_for_all(cell())
    assert said == []


def test_the_allocators_peak_is_that_of_the_step_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    most = [900]
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: most.__setitem__(0, 100))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: most[0])
    monkeypatch.setattr(measure.data_loading, "iterate_batches", lambda one, model: [one["workers"]])
    monkeypatch.setattr(measure.interface, "load_functions", lambda module: None)
    taken: list[Any] = []
    row = dict.fromkeys(measure.peak_memory.COLUMNS, 1)
    monkeypatch.setattr(measure.peak_memory, "measure_memory", lambda batch, *more: taken.append(batch) or [row])
    for rank, device, peak in ((0, GPU, 100), (1, GPU, 100), (0, CPU, None)):
        most[0] = 900
        options = argparse.Namespace(memory=tmp_path / f"{rank}{device.type}.csv")
        found = measure._stock(cell(workers=4), options, nn.Linear(1, 1), device, None, rank)  # type: ignore[arg-type]
        assert found["allocator_peak_bytes"] == peak and options.memory.exists() == (rank == 0)
    # No worker processes are started for it.
    assert taken == [0, 0, 0]


# Rounds.


def test_steps_of_processes_are_joined_with_sides_and_numbers(tmp_path: Path) -> None:
    for name, text in (("a", "step,x\n0,5\n1,6\n"), ("b", "step,x\n0,7\n")):
        (tmp_path / name).write_text(text)
    given = [("", tmp_path / "a"), ("bf16", tmp_path / "b")]
    assert interleaved_runs.join_steps(given, tmp_path / "all") == 3
    assert (tmp_path / "all").read_text() == "side,process,step,x\n,0,0,5\n,0,1,6\nbf16,1,0,7\n"


def test_processes_of_one_side_are_alike() -> None:
    facts = [{"batch": 1, "torch": "2"}, {"batch": 2, "torch": "2"}, {"batch": 1, "torch": "2", "device": "b"}]
    assert (
        interleaved_runs.find_difference(["a", "b", "a"], facts) == "processes of one side differ in device: None and b"
    )
    assert interleaved_runs.find_difference(["a", "b", "c"], facts) is None
    assert (
        interleaved_runs.summarize_processes(["a", "b", "b"], facts, 5, "b")["batch"] == 2
        and interleaved_runs.summarize_processes(["a"], facts[:1], 5)["items"] == 0
    )


def test_so_many_start_at_a_time_as_there_are_cpus_and_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four CPUs, rounds of three begin one at a time, and of two, two."""
    monkeypatch.setattr(interleaved_runs.os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    alive, most = [0], list[int]()

    def begun(words: Any, starter: Any, waiting: bool, by_shifts: bool, to: Any) -> Any:
        alive[0] += 1
        most.append(alive[0])
        wait = lambda: alive.__setitem__(0, alive[0] - 1) or 0  # noqa: E731
        gate = SimpleNamespace(wanted=lambda: True, open=lambda: None)
        foreman = SimpleNamespace(over=lambda process: False)
        return nullcontext(
            interleaved_runs.WaitingProcess(SimpleNamespace(poll=lambda: None, wait=wait), gate, foreman)
        )  # type: ignore[arg-type]

    monkeypatch.setattr(interleaved_runs, "_begun", begun)
    for count, at_once, by_shifts, expected in ((12, 9, 3, 3), (12, 9, 2, 4), (5, 9, 0, 4), (5, 2, 0, 2), (3, 0, 0, 1)):
        most.clear()
        assert list(interleaved_runs.run_in_turn([["x"]] * count, at_once, by_shifts=by_shifts)) == [0] * count
        assert max(most) == expected and len(most) == count


def test_processes_wait_for_the_turn_and_shift_that_they_are_told_of(tmp_path: Path) -> None:
    code = "import json, os, sys; print(json.dumps(sorted(k for k in os.environ if k in ('PROFZOO_TURN', 'PROFZOO_SHIFT'))))"
    for waiting, by_shifts in ((False, False), (True, False), (False, True), (True, True)):
        with (
            (tmp_path / "out").open("w+b") as to,
            interleaved_runs._begun(
                [sys.executable, "-c", code], ProcessStarter(fork=False), waiting, by_shifts, to
            ) as one,
        ):
            assert one.process.wait() == 0
        told = json.loads((tmp_path / "out").read_text())
        assert told == ["PROFZOO_SHIFT"] * by_shifts + ["PROFZOO_TURN"] * waiting


# Locks of GPUs.


def test_gpus_are_taken_in_their_order_as_many_as_are_wanted(tmp_path: Path) -> None:
    words = ["GPU-a", "MIG-b/1", "GPU-c"]
    with gpu_slots.hold_gpus(2, words, pytest.fail, LockTerms(tmp_path / "new" / "locks")) as mine:
        assert mine.words == words[:2] and len(set(mine.descriptors)) == 2
        folder = tmp_path / "new" / "locks"
        assert sorted(path.name for path in folder.iterdir()) == ["GPU-a.lock", "MIG-b-1.lock"]
        assert folder.stat().st_mode & 0o7777 == 0o1777 and (folder / "GPU-a.lock").stat().st_mode & 0o777 == 0o666
        assert [os.fstat(one).st_ino for one in mine.descriptors] == [
            (folder / name).stat().st_ino for name in ("GPU-a.lock", "MIG-b-1.lock")
        ]
        # None is left of two of these, and the third is given back while waiting.
        said = r"waiting for 2 of 3 GPU.* \(GPU-a: process .*; MIG-b/1: process "
        late = gpu_slots.hold_gpus(2, words, lambda line: None, LockTerms(folder, wait_s=0.0))
        with pytest.raises(CollectError, match=said), late:
            pass
        with gpu_slots.hold_gpus(1, words, pytest.fail, LockTerms(folder)) as other:
            assert other.words == ["GPU-c"]
    with gpu_slots.hold_gpus(3, words, pytest.fail, LockTerms(folder)) as mine:
        assert mine.words == words
    with (
        pytest.raises(ValueError, match="4 GPUs wanted, 3 there"),
        gpu_slots.hold_gpus(4, words, print, LockTerms(folder)),
    ):
        pass


def test_a_turn_is_had_once_the_program_wants_it(tmp_path: Path) -> None:
    (own := tmp_path / "own").mkdir()
    with gpu_turns.offer_gpu("GPU-a", own, pytest.fail, LockTerms(tmp_path)) as turn:
        assert turn.words == [] and len(turn.descriptors) == 1
        asking = threading.Thread(target=gpu_turns.wait_for_turn, args=({gpu_turns.TURN: str(own)},))
        asking.start()
        asking.join(10)
        assert turn.words == ["GPU-a"] and 0 <= turn.waited_s < 5
    gate = gpu_turns.TurnGate(own)
    assert gate.variables == {"PROFZOO_TURN": str(own)} and gate.wanted()
    gate.open("no GPU")
    with pytest.raises(CollectError, match="no GPU"):
        gpu_turns.wait_for_turn(gate.variables)
    gpu_turns.TurnGate(own).close()
    with pytest.raises(CollectError, match="has ended before its turn"):
        gpu_turns.wait_for_turn(gate.variables)
    gpu_turns.wait_for_turn({})


def test_a_shift_is_over_as_its_worker_says_so_or_ends() -> None:
    foreman = time_slicing.ShiftGiver()
    process = subprocess.Popen(["sleep", "30"])
    try:
        worker = time_slicing.find_worker(foreman.variables)
        assert (
            worker
            and foreman.variables == {"PROFZOO_SHIFT": str(foreman.descriptors[0])}
            and time_slicing.find_worker({}) is None
        )
        foreman.go()
        worker.rest()
        assert foreman.over(process)
        process.kill()
        process.wait()
        assert not foreman.over(process)
        assert not os.get_inheritable(foreman.descriptors[0])
    finally:
        process.kill()
        process.wait()
        foreman.close()
    with pytest.raises(CollectError, match="has ended before its next shift"):
        worker.rest()


# The lock of results.


def test_results_in_use_or_changed_since_are_refused(tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert results_lock.inspect_folder(results) == results_lock.FolderState(None, None)
    results.mkdir()
    fresh = results_lock.inspect_folder(results)
    assert fresh == results_lock.FolderState(None, results.stat().st_mtime_ns)
    for planned, said in ((results_lock.FolderState("process 7", None), "in use by another run, process 7"),
                          (results_lock.FolderState(None, 1), "has used .* while this one was planned")):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            results_lock.lock_results(results, planned)
    path = results / results_lock.NAME
    with file_locks.hold_lock(path) as descriptor:
        assert results_lock.inspect_folder(results) == results_lock.FolderState("which has just started", None)
        file_locks.replace_text(descriptor, json.dumps({"pid": 7, "host": "h", "folder": "/f", "since": "now"}))
        assert results_lock.inspect_folder(results).holder == "process 7 on h in /f, since now"
        with pytest.raises(ConfigError, match="in use by another run, process 7 on h in /f"):
            results_lock.lock_results(results, results_lock.FolderState(None, results.stat().st_mtime_ns))
    assert results_lock.inspect_folder(results).holder is None
    held = file_locks.acquire_lock(path, wait=False)
    results_lock._release(results, held, os.getpid() + 1)
    assert path.exists()
    results_lock._release(results, held, os.getpid())
    assert not results.exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)


# Steps of training.


def test_a_step_updates_and_forgets_gradients_and_is_checked() -> None:
    network = nn.Linear(1, 1, bias=False)
    network.weight.data.fill_(2.0)
    one = cell(optimizer="auto")
    model = interface.ModelFunctions(
        lambda shape: network, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        loss=lambda outputs, target: (outputs * target).sum(),
    )  # fmt: skip
    trainer = training_step.Trainer(one, model, network, CPU, step_loop.Ranges())
    loss = training_step.run_training_step(trainer, (torch.tensor([[3.0]]), torch.tensor([[1.0]])))
    # 3 * 2; less half of the gradient of 3.
    assert float(loss) == 6 and float(network.weight) == 0.5 and network.weight.grad is None
    trainer.check(loss)
    for wrong, said in ((5, "it returned int"), (torch.ones(2), "it returned a tensor of 2")):
        with pytest.raises(ConfigError, match=said):
            trainer.check(wrong)
    fresh = training_step.Trainer({**one, "precision": "bf16"}, model, network, CPU, step_loop.Ranges())
    with pytest.raises(ConfigError, match="did not enter"):
        fresh.check(torch.ones(()))
    with fresh.forward():
        assert torch.is_autocast_enabled("cpu") and network(torch.ones(1, 1)).dtype == torch.bfloat16
    fresh.check(torch.ones(()))
    half = training_step.Trainer({**one, "precision": "fp16"}, model, network, CPU, step_loop.Ranges())
    with half.forward():
        pass
    with pytest.raises(ConfigError, match="gradients were not scaled"):
        half.check(torch.ones(()))


def test_arithmetic_is_set_as_the_cell_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "x")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    backends = torch.backends

    def now() -> tuple[bool, ...]:
        return (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32, backends.cudnn.benchmark,
                backends.cudnn.deterministic, torch.are_deterministic_algorithms_enabled())  # fmt: skip

    try:
        training_step.set_arithmetic(cell(precision="tf32", cudnn_benchmark=True, deterministic=True))
        assert now() == (True,) * 5 and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    finally:
        training_step.set_arithmetic(cell(precision="fp32", cudnn_benchmark=False, deterministic=False))
    assert now() == (False,) * 5
