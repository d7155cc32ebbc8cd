"""Follows a script through its steps: warm-up, then the window, which a recorder observes."""

import math
import statistics
import threading
from collections import Counter
from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from profzoo.harness import batch_padding, devices, gradient_sync
from profzoo.harness.first_steps import LOSSES, FirstSteps
from profzoo.harness.ranges import Ranges
from profzoo.range_names import STEP
from profzoo.script_harness import networks, step_facts
from profzoo.script_harness.outside_settings import OutsideSettings
from profzoo.script_harness.parts import PartRanges
from profzoo.script_harness.sample_count import SampleCount
from profzoo.script_harness.stages import Stages
from profzoo.script_harness.step_finder import StepFinder
from profzoo.script_harness.step_memory import StepMemory
from profzoo.script_harness.step_waits import StepWaits
from profzoo.script_harness.task import Task, write_note

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import ScriptFacts

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
        self.settings = OutsideSettings(task.cell, task.defaults)
        self.finder = StepFinder(task.cell["step"])
        self.ranges = Ranges()
        self.parts = PartRanges(self.ranges)
        self.networks = networks.Networks(self.ranges, self.settings, task.cell["step"])
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
        # Whether the step ends as soon as no part of it is open.
        self._due = False
        self._autocast: torch.autocast | None = None
        self._stages: Stages | None = None
        self._memory: StepMemory | None = None
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._steps, self._skipped = 0, 0
        self._names: dict[Hashable, str] = {}
        self._counts: Counter[str] = Counter()
        self._kinds: Counter[tuple[tuple[str, int], ...]] = Counter()
        self._samples, self._padding = SampleCount(), batch_padding.BatchPadding()
        self._waits = StepWaits(max(task.cell["warmup"], 1), self.ranges)
        self._window_items: list[int] = []
        self._loss: Tensor | None = None
        # Of the first steps of the script, whether they are of the loop that is found later or not.
        self.first_steps = FirstSteps(cast("CellSettings", task.cell), nn.ModuleList())
        self._losses: list[Tensor] = []
        if not task.times_first:
            self.ranges.watch(*task.kinds_of_ranges)

    def is_watching(self) -> bool:
        """Whether what happens now is of the measured loop."""
        return self.active and self._thread in (None, threading.get_ident())

    # What observers tell.

    def begin_part(self, part: str) -> bool:
        """Open the range of a part of the step; returns whether it has to be ended."""
        if part != "optimizer":
            self.end_scaled_steps()
        self._end_due_step()
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

    def network_called(self, network: nn.Module, inputs: Any, output: Any) -> None:
        """Note that the call of an outermost network has ended."""
        self._thread = self._thread or threading.get_ident()
        self._counts[FORWARDS] += 1
        evaluates = self.finder.made > 0 and self.task.cell["phase"] == "train" and not torch.is_grad_enabled()
        self._samples.note_call(id(network), inputs, output, evaluates)
        if self._stages is None:
            self._padding.note(inputs)
        if self.task.cell["phase"] != "train" and self.first_steps.is_noting():
            self.first_steps.note(inputs, output)
        self._names[id(network)] = f"a call of {type(network).__name__}"
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

    def batch_loaded(self, batch: Any) -> None:
        """Note that a data loader has given a batch."""
        self._counts[BATCHES] += 1
        self._samples.note_batch(batch)

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
        if self.parts.current:
            self._due = True
            return
        self._close_step()
        self._waits.end_step()
        if self.ended:
            # Somebody has caught what ended the script.
            step_facts.end_at_once()
        if self._memory:
            self._end_memory_step()
            return
        self._steps += 1
        self._note_first_step()
        items = self._samples.end_step()
        counts, self._counts = self._counts, Counter()
        self.networks.mark_new()
        if not self.finder.settled or not self.networks.found:
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
        self._open_step()

    def _note_first_step(self) -> None:
        if self._loss is not None and len(self._losses) < LOSSES:
            self._losses.append(self._loss)
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
        """Look at memory in a step more, if that is asked for; then end."""
        assert self._stages
        if self._stages.represents and "memory" in self.task.files:
            self._memory = StepMemory(self.networks, self._optimizers.values(), self.ranges)
            self._open_step()
            return
        self._end()

    def _end_memory_step(self) -> None:
        assert self._memory
        memory, self._memory = self._memory, None
        self._end({"memory": memory.end(self.task.files["memory"])})

    def _end(self, more: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Write what the process knows of itself, and end it unless it is to go on; more: facts besides."""
        assert self._stages
        self.ended = True
        write_note(self.task, self._stages, {**self._facts(), **more}, self._stages.represents)
        if self.task.cell["finish"]:
            self.active = False
            self.ended = False
            return
        step_facts.end_process()

    def _facts(self) -> dict[str, Any]:
        assert self._stages
        device = self.networks.device
        loss = None if self._loss is None else float(self._loss)
        most, times = self._kinds.most_common(1)[0]
        script: ScriptFacts = {
            "step": self._names.get(self.finder.closing) or self.finder.describe_rule(),
            "per_step": dict(most),
            "regular_share": times / self._kinds.total(),
            "skipped_updates": self._skipped,
            "loss_is_finite": loss is None or math.isfinite(loss),
            "networks": self.networks.names(),
            "applied": self.settings.asked,
            "observed": step_facts.describe_arithmetic(self.observed, self.networks.found),
        }
        return {
            **devices.describe_machine(self.task.cell["device"], device),
            **({"device_why": LEFT_ALONE} if device.type != "cuda" and torch.cuda.is_available() else {}),
            "parameters": self.networks.count_parameters(),
            "batch": statistics.median_low(self._window_items),
            "input": {"from": "script", "pool": None},
            "loss": loss if loss is not None and math.isfinite(loss) else None,
            "first_steps": self.first_steps.read([float(one) for one in self._losses], None),
            "imported": step_facts.imported_files(),
            "script": script,
            **self._waits.facts(),
            **gradient_sync.describe_gradient_sync(self.networks.found),
            **step_facts.describe_work(self._padding.read(), self._stages.facts()),
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
