"""Follows a script through its steps: warm-up, then the window, which a recorder observes."""

import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from profzoo.harness import compiled_kernels, devices, distributed, inspection
from profzoo.harness.compiled_kernels import REPLICATED
from profzoo.harness.observers import host_samples, warmup_observers
from profzoo.harness.observers.first_steps import LOSSES, FirstSteps
from profzoo.harness.ranges import Ranges, written_class
from profzoo.harness.source_places import SingleStep
from profzoo.harness.step import batches, peak_memory
from profzoo.machine import program_variables
from profzoo.range_names import STEP
from profzoo.script_harness import stages
from profzoo.script_harness.origins import Origins
from profzoo.script_harness.outside_settings import OutsideSettings
from profzoo.script_harness.samples import SampleCount
from profzoo.script_harness.stages import Stages
from profzoo.script_harness.step_finder import MODULE, StepFinder, split_rule
from profzoo.script_harness.task import Task, write_note

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import BlockingLine, ScriptFacts


# Opens the ranges of a step's parts, one at a time, as a program's calls begin and end.

# Within these, what another part would be stays what it is: a forward pass that backward runs again, the loss of a
# network that computes it, a batch that its loader moves to the GPU. An optimizer may be handed a closure, which runs
# forward and backward within its step.
CLOSED = ("data", "transfer", "forward", "loss", "backward")


class PartRanges:
    """The parts of a step, as ranges that follow one another.

    A part that begins within an optimizer's step interrupts it: its range is closed meanwhile.
    """

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._parts: list[str] = []

    @property
    def current(self) -> str | None:
        """The part whose range is open."""
        return self._parts[-1] if self._parts else None

    def enter(self, part: str) -> bool:
        """Open a part's range; returns whether it was opened, and is to be left."""
        if self.current in CLOSED or self.current == part:
            return False
        if self._parts:
            self._ranges.end()
        self._parts.append(part)
        self._ranges.begin(part)
        return True

    def leave(self) -> None:
        """Close the range that was opened last, and open again the one that it interrupted."""
        self._ranges.end()
        self._parts.pop()
        if self._parts:
            self._ranges.begin(self._parts[-1])


# Keeps the outermost networks that a script calls: their ranges, device and parameters.


class Networks:
    """The networks of a process, in the order of their first call.

    A network is a module with parameters that is called outside of all other modules. Losses and transforms, which
    are modules as well, have none.
    """

    def __init__(self, ranges: Ranges, settings: OutsideSettings, rule: str) -> None:
        self.found: list[nn.Module] = []
        self._ranges, self._settings = ranges, settings
        kind, name = split_rule(rule)
        self._step_module = name if kind == MODULE else ""
        self._device: torch.device | None = None
        self._marked: set[nn.Module] = set()
        self._waiting: list[nn.Module] = []
        self._prefixes: Counter[str] = Counter()
        # Called when a call of the module that the setting `step` names has ended.
        self.step_module_called: Callable[[str], None] = lambda name: None

    @property
    def on_gpu(self) -> bool:
        """Whether the first network is on a GPU."""
        return self.device.type == "cuda"

    @property
    def device(self) -> torch.device:
        """Device of the first network's parameters; the CPU before a network was called."""
        if self._device is None:
            self._device = next((one.device for network in self.found for one in network.parameters()), None)
        return self._device or torch.device("cpu")

    def assume_device(self, device: torch.device) -> None:
        """Take a device for that of a program that calls no network."""
        self._device = device

    def note(self, network: nn.Module) -> None:
        """Note a network before its first call, and apply the cell's settings to it."""
        self.found.append(network)
        self._waiting.append(network)
        if self._step_module:
            self._watch_step_module(network)
        self._settings.apply_to_network(network)

    def mark_new(self) -> None:
        """Have ranges opened around the modules of networks that were first called in the step that has ended.

        Not before, as hooks must not change while a module is called.
        """
        waiting, self._waiting = self._waiting, []
        for network in waiting:
            inside = any(network in set(other.modules()) for other in waiting if other is not network)
            if inside or self._marked & set(network.modules()):
                # A part of another network, whose ranges it has.
                continue
            prefix = "" if not self._marked else class_name(network)
            self._prefixes[prefix] += 1
            number = self._prefixes[prefix]
            self._marked |= set(network.modules())
            self._ranges.mark(network, prefix if number == 1 else f"{prefix}{number}")

    def _watch_step_module(self, network: nn.Module) -> None:
        for path, module in network.named_modules():
            named = self._step_module == type(module).__name__ or f".{path}".endswith(f".{self._step_module}")
            if named and module is not network:
                module.register_forward_hook(
                    lambda *_: None if torch.compiler.is_compiling() else self.step_module_called(self._step_module)
                )

    def count_parameters(self) -> int:
        """Number of parameters of all networks; those that several share count once."""
        own = {id(one): one.numel() for network in self.found for one in network.parameters()}
        return sum(own.values())

    def names(self) -> list[str]:
        """Classes of the networks."""
        return list(dict.fromkeys(map(class_name, self.found)))


def class_name(network: nn.Module) -> str:
    """Class of a network, without what torch.compile or parallel training wraps it in."""
    inner = getattr(network, "_orig_mod", network)
    return written_class(inner.module if isinstance(inner, REPLICATED) else inner).__name__


# Measures memory in one step of a script behind the window: the most that each range holds, by purpose.


class StepMemory:
    """Watches the step that begins now; batches are not known, so that their blocks count as other ones."""

    def __init__(self, networks: Networks, optimizers: Iterable[torch.optim.Optimizer], ranges: Ranges) -> None:
        self._began, self._ranges, self._device = time.perf_counter_ns(), ranges, networks.device
        self._watch = peak_memory.MemoryWatch(networks.found, list(optimizers), None, self._device)
        ranges.watch(torch_ranges=True, torch_modules=False)
        ranges.closed = self._watch.note_closed
        self._watch.begin()

    def leave(self) -> None:
        """Stop watching, also within the step: torch crashes where its observer outlives the interpreter."""
        self._watch.end()
        self._ranges.closed = None

    def end(self, path: Path) -> dict[str, Any]:
        """End the step and write its rows; returns what it took, and the allocator's own peak (None on a CPU)."""
        self.leave()
        peak = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None
        none: list[dict[str, Any]] = []
        rows = inspection.attempt("memory was not taken stock of", self._watch.rows, none)
        peak_memory.write_rows(rows, path)
        return {"wall_ns": time.perf_counter_ns() - self._began, "allocator_peak_bytes": peak}


# Observes warm-up steps of a script: where they wait for the GPU, where the host spends them, and repeated calls.


class StepWaits:
    """The step of a script that is observed, from its beginning to its end."""

    def __init__(self, warmup: int, ranges: Ranges) -> None:
        """warmup: steps before the window."""
        self._gpu = False
        self._waits: SingleStep[list[BlockingLine]] = SingleStep(
            host_samples.step_to_observe(warmup), lambda: host_samples.BlockingLines(ranges) if self._gpu else None
        )
        self._sampled = host_samples.SampledStep(warmup, ranges)
        self._again = warmup_observers.RepeatedStep(warmup, ranges)

    def begin_step(self, index: int, device: torch.device) -> None:
        """Begin to observe if this step of the warm-up, which follows now, is the one to observe."""
        # Only the script decides about the device, and perhaps not before its first step.
        self._gpu = device.type == "cuda"
        self._waits.begin(index)
        self._sampled.begin(index)
        self._again.begin(index)

    def end_step(self) -> None:
        """Stop observing, if the step that ends now was observed."""
        self._sampled.end()
        self._again.end()
        self._waits.end()

    def facts(self) -> dict[str, Any]:
        """Lines at which a step waited and at which the host spent it, and repeated calls; only what was looked at."""
        found: dict[str, Any] = {"blocking_lines": self._waits.found, "host_lines": self._sampled.found}
        found["repeated_calls"] = self._again.found
        return {name: known for name, known in found.items() if known is not None}


# What happens in a step, counted to tell how regular steps are.
BATCHES, FORWARDS, BACKWARDS, UPDATES = "batches", "forward calls", "backward passes", "optimizer steps"
# Why a script was measured on the CPU where there is a GPU.
LEFT_ALONE = "the script itself leaves the GPU alone"


class Session:
    """One process of a script while it is measured.

    Observers (`observers.py`) call its methods as the script's optimizers, modules and loaders are called; only those
    of the thread that first called a network or an optimizer count.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.settings = OutsideSettings(task.cell, task.defaults, task.nudge)
        self.finder = StepFinder(task.cell["step"])
        self.ranges = Ranges()
        self.parts = PartRanges(self.ranges)
        self.networks = Networks(self.ranges, self.settings, task.cell["step"])
        self.origins = Origins()
        self.active = True
        self.ended = False
        self.observed: set[str] = set()
        # Whether a gradient scaler is at work, and the optimizers that have stepped within its step.
        self.scaling = False
        self.scaled_steps: list[torch.optim.Optimizer] = []
        self._awaiting: list[tuple[torch.optim.Optimizer, bool]] = []
        self._unscaled = False
        self._thread: int | None = None
        self._in_step = False
        # Whether the step ends as soon as no part of it is open, and whether one that ends now ends with what follows.
        self._due, self.ends_late = False, False
        self._autocast: torch.autocast | None = None
        self._stages: Stages | None = None
        self._memory: StepMemory | None = None
        # Whether the step is the one behind the window, in which memory or results are looked at; and these results.
        self._last, self._outputs = False, None
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._steps, self._skipped = 0, 0
        # The number of the step that the process is in, 0 before its first one: what is left if a signal ends it.
        self.reached: list[int] | memoryview[int] = [0]
        self._names: dict[Hashable, str] = {}
        self._counts: Counter[str] = Counter()
        self._kinds: Counter[tuple[tuple[str, int], ...]] = Counter()
        self.samples, self._padding = SampleCount(), batches.BatchPadding()
        self._loading, self._loader = batches.BatchLoading(), dict[str, Any]()
        self.worker_starts = batches.WorkerStarts()
        self._waits = StepWaits(max(task.cell["warmup"], 1), self.ranges)
        self._window_items: list[int | None] = []
        self._loss: Tensor | None = None
        # Of the first steps of the script, whether they are of the loop that is found later or not.
        self.first_steps = FirstSteps(cast("CellSettings", task.cell), nn.ModuleList())
        self._losses: list[Tensor] = []
        if task.kinds_of_ranges[1]:
            compiled_kernels.watch()
        if not task.times_first:
            self.ranges.watch(*task.kinds_of_ranges)

    def is_watching(self) -> bool:
        """Whether what happens now is of the measured loop."""
        return self.active and self._thread in (None, threading.get_ident())

    def is_in_window(self) -> bool:
        """Whether what happens now is of the measured loop, in its window."""
        return self._stages is not None and self.is_watching()

    def begin_part(self, part: str) -> bool:
        """Open the range of a part of the step; returns whether it has to be ended."""
        if part != "optimizer":
            self.end_scaled_steps()
        self._end_due_step()
        # A script moves its network and its data before its loop, too.
        if not self.reached[0] and part != "transfer":
            self.reached[0] = 1
        if not self.parts.enter(part):
            return False
        if part in ("forward", "loss") and (autocast := self.settings.make_autocast(self.networks.device)):
            self._autocast = autocast
            autocast.__enter__()
        return True

    def end_part(self) -> None:
        """Close the range that was begun last."""
        if self._autocast and self.parts.current in ("forward", "loss"):
            self._autocast.__exit__(None, None, None)
            self._autocast = None
        self.parts.leave()

    def optimizer_stepped(self, optimizer: torch.optim.Optimizer, skipped: bool = False) -> None:
        """Note that an optimizer's step has ended, or was skipped by a gradient scaler."""
        self._thread = self._thread or threading.get_ident()
        self._counts[UPDATES] += 1
        self._skipped += skipped
        self._optimizers[id(optimizer)] = optimizer
        self._names[id(optimizer)] = f"a step of {type(optimizer).__name__}"
        if self.finder.optimizer_stepped(id(optimizer)):
            self._end_step()

    def await_update(self, optimizer: torch.optim.Optimizer, skipped: bool) -> None:
        """Note a step by a gradient scaler, which ends with the scaler's update or with what follows instead."""
        self._awaiting.append((optimizer, skipped))

    def end_scaled_steps(self) -> None:
        """End the steps that waited for their gradient scaler's update."""
        waiting, self._awaiting = self._awaiting, []
        for optimizer, skipped in waiting:
            self.optimizer_stepped(optimizer, skipped)

    def network_called(self, network: nn.Module, inputs: Any, named: Any, output: Any) -> None:
        """Note that the call of an outermost network has ended; named: its keyword arguments."""
        self._thread = self._thread or threading.get_ident()
        self._counts[FORWARDS] += 1
        evaluates = self.finder.made > 0 and self.task.cell["phase"] == "train" and not torch.is_grad_enabled()
        self.samples.note_call(id(network), (inputs, named), output, evaluates)
        if self._stages is None:
            self._padding.note((inputs, named))
        if self.task.cell["phase"] != "train" and self.first_steps.is_noting():
            self.first_steps.note(inputs, output)
        self._outputs = output if self._last else None
        self._names[id(network)] = f"a call of {class_name(network)}"
        if self.finder.module_called(id(network), (type(network).__name__,), outermost=True):
            self._end_step()
        self._end_due_step()

    def module_called(self, name: str) -> None:
        """Note that the call of the module that the setting `step` names has ended."""
        if self.finder.module_called(name, (name,), outermost=False):
            self._end_step()

    def batch_asked_for(self) -> None:
        """Note that a data loader is asked for its next batch."""
        if self.finder.batch_asked_for() and self._counts:
            self._end_step()
        if self._stages is None:
            self._loading.begin()

    def batch_loaded(self, batch: Any, samples: int, iterator: Any) -> None:
        """Note that the iterator of a data loader has given a batch of so many samples."""
        if self._stages is None:
            self._loading.end(batch)
            self._loader = {"workers": iterator._num_workers, "pin_memory": iterator._pin_memory}
            self.origins.note_batch(iterator)
        self._counts[BATCHES] += 1
        self.samples.note_batch(samples)

    def range_ended(self, name: str) -> None:
        """Note that a range of the script's own has ended."""
        if self.finder.range_ended(name):
            self._end_step()

    def backward_ended(self, loss: Any) -> None:
        """Note that a backward pass has ended; loss: what it was called with."""
        self._counts[BACKWARDS] += 1
        if not self._unscaled:
            self._note_loss(loss)

    def note_unscaled_loss(self, loss: Tensor) -> None:
        """Note a loss before a gradient scaler multiplies it."""
        self._unscaled = True
        self._note_loss(loss)

    def _note_loss(self, loss: Any) -> None:
        if isinstance(loss, Tensor) and loss.numel() == 1:
            self._loss = loss.detach()

    # Steps and the window.

    def _end_due_step(self) -> None:
        """End a step that was to end within one of its parts, once the part is over: ranges must not cross."""
        if self._due and not self.parts.current:
            self._due = False
            self._end_step()

    def _end_step(self) -> None:
        if self.parts.current or self.ends_late:
            self._due = True
            return
        self._close_step()
        self._waits.end_step()
        if self.ended:
            # Somebody has caught what ended the script.
            stages.end_at_once()
        if self._memory:
            self._end_memory_step()
            return
        if self._last:
            return self._end()
        self._steps += 1
        self._note_first_step()
        items = self.samples.end_step(self.finder.closing)
        counts, self._counts = self._counts, Counter()
        self.networks.mark_new()
        if not self.knows_loop():
            self._steps = 0
        elif self._stages is None:
            if self._steps >= max(self.task.cell["warmup"], 1):
                self._open_window()
            else:
                self._waits.begin_step(self._steps, self.networks.device)
        else:
            self._kinds[tuple(sorted(counts.items()))] += 1
            self._window_items.append(items)
            if self._stages.note_step(items):
                self._close_window()
                return
        self.reached[0] = self._steps + 1
        self._open_step()

    def knows_loop(self) -> bool:
        """Whether the step that has ended is one of the loop that is measured."""
        return self.finder.settled and bool(self.networks.found)

    def _note_first_step(self) -> None:
        if self._loss is not None and len(self._losses) < LOSSES:
            # A graph that is played again writes into the same loss.
            self._losses.append(self._loss.clone() if "marks" in self.task.files else self._loss)
        if self.task.cell["phase"] == "train" and self.first_steps.is_noting():
            self.first_steps.note((), None)

    def _open_step(self) -> None:
        self.ranges.begin(STEP)
        self._in_step = True

    def _close_step(self) -> None:
        if self._in_step:
            self.ranges.end()
            self._in_step = False

    def _open_window(self) -> None:
        self.settings.apply_arithmetic()
        self._stages = Stages(self.task, self.networks.device, self.ranges)
        self._stages.begin()

    def _close_window(self) -> None:
        """Look at memory or at results in a step more, if that is asked for; then end."""
        window = self._stages
        if window and window.represents and "marks" in self.task.files:
            self._last = True
            return self._open_step()
        if not window or "memory" not in self.task.files or not (window.represents or window.several):
            return self._end()
        if not window.represents:
            # The one that represents the cell waits for the others in that step.
            self._last = True
            return self._open_step()
        self._memory = StepMemory(self.networks, self._optimizers.values(), self.ranges)
        self._open_step()

    def end_with_script(self) -> None:
        """Write what a full window measured where the script has ended by itself before the window's time was over."""
        if self._memory:
            # It lacks the step behind its window.
            self._memory.leave()
        elif self._stages and not self.ended and (self._last or self._stages.close_if_full()):
            self.ended = True
            write_note(self.task, self._stages, self._facts(), self._stages.represents)

    def _end_memory_step(self) -> None:
        assert self._memory
        memory, self._memory = self._memory, None
        roof = stages.measure_roof(self.networks.device, self.observed, self.networks.found)
        self._end({"memory": memory.end(self.task.files["memory"]), **roof})

    def _end(self, more: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Write what the process knows of itself, and end it unless it is to go on; more: facts besides."""
        assert self._stages
        self.ended = True
        write_note(self.task, self._stages, {**self._facts(), **more}, self._stages.represents)
        if self.task.cell["finish"]:
            self.active = self.ended = False
        else:
            stages.end_process()

    def _facts(self) -> dict[str, Any]:
        assert self._stages
        device = self.networks.device
        loss = None if self._loss is None else float(self._loss)
        items = [count or 0 for count in self._window_items]
        most, times = self._kinds.most_common(1)[0]
        script: ScriptFacts = {
            "step": self._names.get(self.finder.closing) or self.finder.describe_rule(),
            "per_step": dict(most),
            "regular_share": times / self._kinds.total(),
            "skipped_updates": self._skipped,
            "loss_is_finite": loss is None or math.isfinite(loss),
            "networks": self.networks.names(),
            "applied": self.settings.asked,
            "observed": stages.describe_arithmetic(self.observed, self.networks.found),
            "made": self.origins.describe(self.networks.found, self._optimizers.values()),
        }
        return {
            **devices.describe_machine(self.task.cell["device"], device),
            **({"device_why": LEFT_ALONE} if device.type != "cuda" and torch.cuda.is_available() else {}),
            "parameters": self.networks.count_parameters(),
            # None where it is not known, or where nothing was counted.
            "batch": None if None in self._window_items else statistics.median_low(items) or None,
            "input": {"from": "script", "pool": None},
            "loss": loss if loss is not None and math.isfinite(loss) else None,
            "first_steps": self.first_steps.read([float(one) for one in self._losses], self._outputs),
            "read_variables": program_variables.describe_reads(),
            "script": script,
            **self._waits.facts(),
            **self._loading.read(**self._loader, **self.worker_starts.read()),
            **distributed.describe_gradient_sync(self.networks.found),
            **stages.describe_work(self._padding.read(), self._stages.facts()),
        }

    def describe_progress(self) -> dict[str, Any]:
        """What was seen of the script, for the message where it ended before its window did."""
        return {
            "steps": self._steps,
            "optimizers": self.finder.made,
            "optimizer_steps": self.finder.optimizer_steps,
            "calls": self.finder.calls,
            "networks": self.networks.names(),
        }
