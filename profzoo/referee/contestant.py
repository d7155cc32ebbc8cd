"""Runs one state of a program for the referee: `python -m profzoo.referee.contestant go`, a process of its own.

It does what the referee asks for over a socket, and decides nothing: the clock, the seeds of the inputs and the checks
of the results are the referee's, in another process. What judged code might replace here is bound before that code is
imported, and looked at again afterwards.
"""

import builtins
import contextlib
import importlib
import importlib.util
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from profzoo.errors import ConfigError, first_error_line
from profzoo.harness import devices, inspection, interface
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import batches, step_loop, training_step
from profzoo.machine import process_tree, processes
from profzoo.op_costs import operator_calls, operators
from profzoo.referee import exchange, inputs
from profzoo.referee.inputs import Inputs, Values

# Of the weights; every state begins with those of the reference.
SEED = 0
BATCHES, WARMUP = 2, 3
WARM_SEED_BYTES = 7
COMPILING = "TORCHINDUCTOR_COMPILE_THREADS"
# Bound before judged code is imported.
_receive, _send, _now, _kind_of = exchange.receive, exchange.send, time.perf_counter, type
_seed_all, _synchronize, _Event = torch.manual_seed, torch.cuda.synchronize, torch.cuda.Event

# Functions whose replacement is noticed, by the module or class that holds them.
WATCHED: Sequence[tuple[Any, str]] = (
    (time, "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns sleep"),
    (torch.cuda, "synchronize Event current_stream Stream stream is_available manual_seed_all"),
    (torch.cuda.Event, "record elapsed_time synchronize query wait __new__"),
    (torch.cuda.Stream, "synchronize wait_stream wait_event record_event"),
    (torch, "allclose equal isclose all any isnan isfinite rand randn randint randperm manual_seed addcmul where"),
    (
        torch,
        "empty gather from_numpy cos sin cat Generator no_grad inference_mode set_num_threads get_num_threads compile",
    ),
    (torch.testing, "assert_close make_tensor"),
    (Tensor, "to cpu cuda item view clone copy_ numpy double float detach contiguous tolist __eq__ allclose equal"),
    (Tensor, "type reshape uniform_ normal_ random_ expand flatten isfinite data_ptr __getitem__ numel element_size"),
    (nn.Module, "load_state_dict state_dict to double eval train parameters buffers"),
    (np, "allclose array_equal frombuffer ascontiguousarray"),
    (np.random, "default_rng seed random"),
    (np.testing, "assert_allclose"),
    (socket.socket, "sendall recv_into send recv"),
    (exchange, "send receive _receive_bytes _dump _load _pack _unpack"),
    (os, "write read getpid fork"),
    (builtins, "range len zip enumerate sum map iter next isinstance __import__"),
    (sys, "stdout stderr exit modules path_hooks"),
    (inspection, "find_tensors map_leaves"),
    (interface, "load_functions default_loss"),
    (step_loop, "make_step"),
    (training_step, "Trainer run_training_step run_pass"),
    (batches, "split_batch call_network"),
    (inputs, "Inputs Values _addcmul _where _empty _from _draw _gather _cos _sin _cat _make_generator"),
    (sys.modules[__name__], "Contestant watch _synchronize _Event _now _receive _send _kind_of _seed_all"),
)


def watch() -> dict[str, Any]:
    """Return watched functions and the code of those written in Python, by their names."""
    found: dict[str, Any] = {}
    own = [(kind, name) for kind in (Contestant, Inputs, Values) for name in vars(kind) if callable(vars(kind)[name])]
    for holder, name in [*((holder, name) for holder, names in WATCHED for name in names.split()), *own]:
        # The compiler of torch wraps some functions when it is first needed.
        value = getattr(holder, name, None)
        value = getattr(value, "__wrapped__", value) if _is_of_compiler(value) else value
        place = f"{getattr(holder, '__module__', '') + '.' if isinstance(holder, type) else ''}{holder.__name__}.{name}"
        found[place] = value
        if code := getattr(value, "__code__", None):
            found[f"{place}.__code__"] = code
    return found


def _is_of_compiler(value: Any) -> bool:
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename == torch._compile.__file__


def find_replaced(before: Mapping[str, Any]) -> list[str]:
    """Return the names of what has been replaced since `watch`."""
    now = watch()
    return [name for name, value in before.items() if now.get(name) is not value]


class Contestant:
    """One state of a program with the weights of the reference, ready for steps."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        """setup: what the referee says of the state."""
        training_step.set_arithmetic(make_cell(setup, {"batch": 0}))
        self._setup, self._training = setup, setup["phase"] == "train"
        self._before, self._settings = watch(), read_settings()
        self._loss = None if setup["loss"] is None else _load_loss(setup["loss"])
        self._model = load_model(setup["folder"], setup["module"])
        material = torch.load(setup["material"], weights_only=False, map_location="cpu")
        self._device = torch.device("cuda", 0) if setup["device"] == "cuda" else torch.device("cpu")
        self._cell = make_cell(setup, material["shape"])
        self._network, self._parts = self._build(material)
        self._inputs = Inputs(material["batches"], self._device, setup["double"], targets=self._training)
        self._values, self._like = Values(), list[Tensor]()
        self._initial = [one.detach().clone() for one in self._state()] if self._training else []

    def _build(self, material: Mapping[str, Any]) -> tuple[nn.Module, Any]:
        _seed_all(SEED)
        network = self._model.build(SimpleNamespace(**material["shape"]))
        try:
            network.load_state_dict(material["weights"])
        except RuntimeError as error:
            told = " ".join(str(error).split())
            raise UnfitError(f"the reference's weights do not fit it: {told}") from None
        double = self._setup["double"]
        network.to(self._device)
        if double:
            network.double()
        step_loop.set_up_network(network, self._cell, self._device)
        for part in network.modules():
            # Both sides would have to draw the same numbers, and random ones say nothing of what is computed.
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.p = 0.0
        others = self._model.others
        model = interface.ModelFunctions(
            **{name: getattr(self._model, name) for name in interface.ModelFunctions.__dataclass_fields__}
            | ({"loss": self._loss} if self._loss else {})
            | ({"others": lambda shape: others(shape).double()} if double else {})
        )
        parts = step_loop.make_step(self._cell, model, network, self._device, Ranges())
        return network, parts

    def _state(self) -> list[Tensor]:
        trained = [self._network, *([self._parts.trainer.others] if self._parts.trainer else [])]
        return [one for part in trained for one in [*part.parameters(), *part.buffers()]]

    def _results(self, result: Any) -> list[Tensor]:
        """Return the tensors of a step's result.

        Raises:
            UnfitError: there is none, or one is of a class of its own, which may compute when it is read.
        """
        found = [one for one in inspection.find_tensors(result) if one.numel()]
        for one in found:
            if _kind_of(one) not in (Tensor, nn.Parameter) or one.layout is not torch.strided:
                raise UnfitError(f"a result is a {_kind_of(one).__name__}, and not a plain dense tensor", "invalid")
        if not found:
            raise UnfitError(f"a step returns {_kind_of(result).__name__} without a tensor")
        return found

    def warm(self) -> dict[str, Any]:
        """Run some steps with inputs of its own; returns what results are like."""
        self._inputs.begin(int.from_bytes(os.urandom(WARM_SEED_BYTES), "big"), WARMUP, "")
        for step in range(WARMUP):
            self._like = [one.detach() for one in self._results(self._parts.step(self._inputs.mix(step)))]
        self._wait()
        return {"results": self._describe(), "numbers": self._inputs.has_numbers}

    def _describe(self) -> list[dict[str, Any]]:
        shown = Values()
        shown.begin(self._like, 1)
        if self._training:
            shown.hold([one for one in self._state() if one.is_floating_point() and one.numel()])
        return shown.describe()

    def go(self, seed: int, steps: int, rows: Sequence[int] | None, probe: str) -> dict[str, Any]:
        """Run steps whose inputs are made by the seed; rows: only these of them.

        Returns: seconds by this process's own clock, and by the device's.
        """
        began = _now()
        _seed_all(seed)
        self._inputs.begin(seed, steps, probe)
        chosen = range(steps) if rows is None else rows
        self._values.begin(self._like, len(chosen))
        marks = [_Event(enable_timing=True) for _ in range(2)] if self._device.type == "cuda" else []
        for mark in marks[:1]:
            mark.record()
        for row, step in enumerate(chosen):
            self._values.keep(row, self._results(self._parts.step(self._inputs.mix(step))))
        for mark in marks[1:]:
            mark.record()
        self._wait()
        if self._training:
            self._hold_state()
        return {"own_s": _now() - began, "device_s": marks[0].elapsed_time(marks[1]) / 1e3 if marks else None}

    def _hold_state(self) -> None:
        self._values.hold([one for one in self._state() if one.is_floating_point() and one.numel()])

    def give(self, asked: Sequence[Mapping[str, Any]], content: bytes) -> bytes:
        """Return values of the steps of the last go."""
        return self._values.give(asked, content)

    @torch.no_grad()
    def reset(self) -> None:
        """Set weights back to those of the reference, and the optimizers' state to zero."""
        for one, before in zip(self._state(), self._initial, strict=True):
            one.copy_(before)
        for optimizer in self._parts.trainer.optimizers if self._parts.trainer else ():
            for state in optimizer.state.values():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        value.zero_()
                    elif isinstance(value, int | float) and not isinstance(value, bool):
                        state[name] = 0
        # Weights before the first step can be asked for.
        self._values.begin(self._like, 1)
        self._hold_state()
        self._wait()

    def count(self) -> dict[str, Any]:
        """Count the operators of one step, the operations that their shapes call for, and the types of numbers."""
        counter = OperatorCounter()
        self._inputs.begin(SEED, 1, "")
        batch = self._inputs.mix(0)
        with counter:
            self._parts.step(batch)
        self._wait()
        return {"calls": counter.calls, "flop": counter.flop, "types": sorted(counter.types)}

    def check(self) -> dict[str, Any]:
        """Return what has been replaced or set otherwise since before the judged code was imported."""
        wrong = [f"{name} was replaced" for name in find_replaced(self._before)]
        settings = read_settings()
        wrong += [
            f"{name} was changed from {before} to {settings[name]}"
            for name, before in self._settings.items()
            if before != settings[name]
        ]
        if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
            wrong.append("a mode that intercepts torch's functions is active")
        if sys.gettrace() or sys.getprofile():
            wrong.append("a function that traces others is active")
        return {"wrong": wrong}

    def _wait(self) -> None:
        if self._device.type == "cuda":
            _synchronize()


def read_settings() -> dict[str, str]:
    """Return settings of torch that say how precisely and on how many cores it computes."""
    return {
        "the number of threads": str(torch.get_num_threads()),
        "the default type of numbers": str(torch.get_default_dtype()),
        "TensorFloat-32 of matrix products": str(torch.backends.cuda.matmul.allow_tf32),
        "TensorFloat-32 of cuDNN": str(torch.backends.cudnn.allow_tf32),
        "sums in reduced precision": str(torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
    }


class UnfitError(ValueError):
    """A state that does not do what the reference does; outcome: what that makes of it."""

    def __init__(self, told: str, outcome: str = "different") -> None:
        """told: in words."""
        super().__init__(told)
        self.outcome = outcome


class OperatorCounter(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts operators that are called below it; `flop` counts those whose cost is known."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        super().__init__()
        self.calls: dict[str, int] = {}
        self.types: set[str] = set()
        self.flop = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a call, and make it."""
        # In inference mode, an operator that consists of others comes as itself.
        if function is not torch.ops.prim.device.default:
            with self:
                parts = function.decompose(*args, **(kwargs or {}))
            if parts is not NotImplemented:
                return parts
        result = function(*args, **(kwargs or {}))
        name = function._schema.name
        self.calls[name] = self.calls.get(name, 0) + 1
        with contextlib.suppress(Exception):
            self._count(name, function._schema, [*args, *(kwargs or {}).values()], result)
        return result

    def _count(self, name: str, schema: Any, given: Sequence[Any], result: Any) -> None:
        for one in inspection.find_tensors((list(given), result)):
            if one.is_floating_point():
                self.types.add(str(one.dtype).removeprefix("torch."))
        dims, kinds, values = [], [], []
        for one in given:
            tensor = isinstance(one, Tensor)
            dims.append(list(one.shape) if tensor else [])
            kinds.append(KINDS.get(one.dtype, "") if tensor else "Scalar")
            values.append("" if tensor else str(one))
        if cost := operators.operator_cost(name, dims, kinds, values):
            self.flop += cost.flop


# Types by torch.profiler's names of them.
KINDS = {
    torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int", torch.int32: "int", torch.bool: "bool", torch.int8: "signed char",
}  # fmt: skip
assert set(KINDS.values()) <= set(operator_calls.ITEM_BYTES)


# Loading a state.


def load_model(folder: str, module: str) -> interface.ModelFunctions:
    """Load a program from its folder, and from nowhere else.

    Raises:
        UnfitError: a module of this name was found elsewhere, or defines no `build`.
    """
    home = Path(folder)
    places = [str(home), str((home / module).parent)]
    sys.path[:] = [*dict.fromkeys(places), *(path for path in sys.path if path not in places)]
    importlib.invalidate_caches()
    name = ".".join(Path(module).with_suffix("").parts)
    _take_folder(home, name.partition(".")[0])
    try:
        found = interface.load_functions(name)
    except TypeError as error:
        raise UnfitError(f"{module} cannot be used: {first_error_line(error)}") from None
    file = Path(getattr(sys.modules[name], "__file__", None) or "/")
    if not file.is_relative_to(home):
        raise UnfitError(f"{name} was imported from elsewhere: rename {module}, as a package has its name")
    return found


def _take_folder(home: Path, name: str) -> None:
    """Have a folder without __init__.py be a package also where a package of its name is installed, which would win."""
    found = PathFinder.find_spec(name, [str(home)])
    if found and found.origin is None and name not in sys.modules:
        found.submodule_search_locations = [str(home / name)]
        sys.modules[name] = importlib.util.module_from_spec(found)


def _load_loss(where: Mapping[str, str]) -> Callable[[Any, Any], Tensor]:
    """Load the reference's loss, and forget its modules, as a candidate's have the same names; torch's by default."""
    if not where:
        return interface.default_loss
    before, paths = set(sys.modules), list(sys.path)
    loss = load_model(where["folder"], where["module"]).loss
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        # A folder without __init__.py has no file.
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if any(Path(place or "/").is_relative_to(where["folder"]) for place in places):
            del sys.modules[name]
    sys.path[:] = paths
    return loss


def make_cell(setup: Mapping[str, Any], shape: Mapping[str, Any]) -> Any:
    """Return the settings that the harness needs of a cell."""
    return {
        "model": "the program", "module": setup["module"], "phase": setup["phase"], "shape": dict(shape),
        "batch": shape["batch"], "precision": "fp32" if setup["double"] else setup["precision"], "gpus": 1, "nodes": 1,
        "channels_last": False, "compile": False, "cudnn_benchmark": False, "deterministic": False, "warmup": WARMUP,
        "seed": SEED, "data": {"source": "synthetic"},
    }  # fmt: skip


def prepare_material(setup: Mapping[str, Any]) -> dict[str, Any]:
    """Make what all states get of the reference, its weights and base batches, in a file; returns facts.

    Raises:
        ConfigError: the reference's file lacks what is needed, or there is no such device.
    """
    device = devices.choose_device(setup["device"])
    model = load_model(setup["folder"], setup["module"])
    source = sys.modules[".".join(Path(setup["module"]).with_suffix("").parts)]
    shape = find_shape(source, setup["phase"], setup["workload"]) | setup["shape"]
    if "batch" not in shape:
        raise ConfigError(f"{setup['module']} says no batch in WORKLOADS: give one, as in --shape batch=8")
    _seed_all(SEED)
    named = SimpleNamespace(**shape)
    network = model.build(named)
    generator = torch.Generator().manual_seed(SEED)
    dataset = model.dataset(named) if model.dataset else None
    count = BATCHES * shape["batch"]
    samples = [dataset[at] if dataset is not None else model.sample(named, generator) for at in range(count)]
    collate = model.collate or default_collate
    given = [collate(samples[at::BATCHES]) for at in range(BATCHES)]
    given, replaced = inputs.vary_constants(given, generator)
    notes = ["constant inputs were replaced by random ones, as results of constant ones can be kept"] * replaced
    torch.save({"shape": shape, "batches": given, "weights": network.state_dict()}, setup["material"])
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return {"device": device.type, "machine": machine, "shape": shape, "notes": notes,
            "own_loss": model.loss is not interface.default_loss}  # fmt: skip


def find_shape(source: Any, phase: str, workload: str) -> dict[str, Any]:
    """Return the sizes of a phase that a model's file names.

    Raises:
        ConfigError: it has no such workload.
    """
    known = getattr(source, "WORKLOADS", {})
    name = workload or ("trimmed" if "trimmed" in known else next(iter(known), ""))
    if name and (name not in known or phase not in known[name]):
        raise ConfigError(f"WORKLOADS has no {phase} of '{name}': {(known and ', '.join(known)) or 'it has none'}")
    return dict(getattr(source, "SHAPE", {})) | dict(known[name][phase] if name else {})


# The conversation.

# What is asked before any code of the candidate runs.
BEFORE = ("prepare", "begin")


@contextlib.contextmanager
def _telling(connection: socket.socket, ask: str) -> Iterator[None]:
    """Answer with an error of the body, in place of its answer; ask: what the body does."""
    try:
        yield
    except UnfitError as error:
        _send(connection, {"failed": str(error), "outcome": error.outcome})
    except ConfigError as error:
        # Later, code of the state may raise it, and the harness because of what that code does.
        _send(connection, {"failed": str(error), "outcome": "error" if ask in BEFORE else "different"})
    except Exception as error:
        _send(connection, {"failed": f"{type(error).__name__}: {first_error_line(error)}", "outcome": "different"})


def converse(connection: socket.socket) -> None:
    """Do what the referee asks for until it has gone."""
    contestant: Contestant | None = None
    _send(connection, {"process": os.getpid()})
    while True:
        try:
            asked, content = _receive(connection)
        except EOFError:
            return
        ask = asked.pop("ask")
        with _telling(connection, ask):
            match ask:
                case "prepare":
                    _enter(asked)
                    _send(connection, prepare_material(asked))
                case "begin":
                    _enter(asked)
                    torch.zeros((), device=devices.choose_device(asked["device"]))
                    _send(connection, {})
                case "set up":
                    contestant = Contestant(asked)
                    _send(connection, contestant.warm())
                case "go":
                    assert contestant
                    _send(connection, contestant.go(**asked))
                case "give":
                    assert contestant
                    _send(connection, {}, contestant.give(asked["asked"], content))
                case "reset":
                    assert contestant
                    contestant.reset()
                    _send(connection, {})
                case "count":
                    assert contestant
                    _send(connection, contestant.count())
                case "check":
                    assert contestant
                    _send(connection, contestant.check())
                case "ping":
                    _send(connection, {})


def _enter(setup: Mapping[str, Any]) -> None:
    """Make the state's folder that of this process, and set what holds for all states."""
    os.chdir(setup["folder"])
    sys.dont_write_bytecode = True
    if setup["threads"]:
        torch.set_num_threads(setup["threads"])


def prepare(words: Sequence[str]) -> None:
    """Import what most contestants need, so that forks need not."""
    # Processes that compile would stay beside the contestant.
    os.environ[COMPILING] = "1"
    # Optimizers import it as they are made.
    importlib.import_module("torch._dynamo")


def main(words: Sequence[str] | None = None) -> int:
    """Talk to the referee; returns the exit code."""
    process_tree.die_with_parent()
    # This package is known by now; what else lies beside it, such as a package `models`, is no part of a state.
    sys.path[:] = [path for path in sys.path if path != processes.find_own_folder()]
    with socket.socket(fileno=int(os.environ.pop(exchange.SOCKET))) as connection:
        connection.set_inheritable(False)
        converse(connection)
    return 0


if __name__ == "__main__":
    sys.exit(main())
