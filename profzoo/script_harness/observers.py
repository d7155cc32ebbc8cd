"""Lets a session see what a script does, without a change to the script.

Functions of torch are wrapped when torch has just been imported, so that names that the script imports from it are
wrapped already.
"""

import functools
import itertools
import sys
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any

import nvtx
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader
from torch.utils.weak import WeakIdKeyDictionary

from profzoo.script_harness.origins import LOADER, MODEL, OPTIMIZER
from profzoo.script_harness.samples import LoadedSizes
from profzoo.script_harness.session import Session
from profzoo.script_harness.step_finder import RANGE

# Replaces functions of torch by ones that tell a session of their calls.

Function = Callable[..., Any]
# Undo what watching has changed in torch and in networks, the last change first.
_undo: list[Callable[[], Any]] = []


def unwatch() -> None:
    """Leave torch and the networks as they were; what others have put around a wrapper since stays."""
    while _undo:
        _undo.pop()()


def put(owner: Any, name: str, function: Any) -> None:
    """Set a function of a module or class until `unwatch`; one of a parent class comes back then."""
    own, before = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, function)

    def undo() -> None:
        if vars(owner).get(name) is function:
            setattr(owner, name, before) if own else delattr(owner, name)

    _undo.append(undo)


def wrap(owner: Any, name: str, around: Callable[[Function], Function]) -> None:
    """Replace a function of a module or class by one that calls it; what torch.compile traces is left as it is."""
    original = getattr(owner, name)
    wrapped = around(original)

    @functools.wraps(original)
    def call(*given: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*given, **named)
        return wrapped(*given, **named)

    put(owner, name, call)


def within_part(session: Session, part: str, function: Function) -> Function:
    """Wrap a function so that its call is in a part of the step."""

    def call(*given: Any, **named: Any) -> Any:
        if not session.is_watching() or not session.begin_part(part):
            return function(*given, **named)
        try:
            return function(*given, **named)
        finally:
            session.end_part()

    return call


# Notes the lines at which a script makes its networks, optimizers and data loaders.


def watch_making(session: Session) -> None:
    """Note where objects are made, outside of their constructors, and of which loader an iterator is."""
    for kind, owner in ((MODEL, nn.Module), (OPTIMIZER, torch.optim.Optimizer), (LOADER, dataloader.DataLoader)):
        wrap(owner, "__init__", functools.partial(noting_maker, session, kind))

    def handing_on(original: Function) -> Function:
        def call(loader: Any) -> Any:
            iterator = original(loader)
            session.origins.hand_on(loader, iterator)
            return iterator

        return call

    wrap(dataloader.DataLoader, "_get_iterator", handing_on)


def noting_maker(session: Session, kind: str, original: Function) -> Function:
    """Wrap a constructor so that the line that calls it is noted, past this function and that of `wrap`."""

    def call(made: Any, *given: Any, **named: Any) -> None:
        session.origins.note(kind, made, sys._getframe(2))
        original(made, *given, **named)
        if kind == LOADER:
            session.origins.note_loader(made)

    return call


# Tells a session of a script's backward passes, losses, batches, transfers and autocast contexts.


def watch_backward(session: Session) -> None:
    """Tell of backward passes: `Tensor.backward` calls this function too."""

    def backward(original: Function) -> Function:
        inside = within_part(session, "backward", original)

        def call(tensors: Any, *given: Any, **named: Any) -> Any:
            result = inside(tensors, *given, **named)
            if session.is_watching():
                session.backward_ended(tensors[0] if isinstance(tensors, tuple | list) and tensors else tensors)
            return result

        return call

    wrap(torch.autograd, "backward", backward)
    wrap(torch.autograd, "grad", lambda original: within_part(session, "backward", original))
    wrap(torch.optim.Optimizer, "zero_grad", lambda original: within_part(session, "optimizer", original))


def watch_losses(session: Session) -> None:
    """Put torch's functions of losses into the part `loss`, unless a network calls them."""
    for name in dir(nn.functional):
        if name.endswith("_loss") or "cross_entropy" in name or name == "kl_div":
            wrap(nn.functional, name, lambda original: within_part(session, "loss", original))


def watch_loaders(session: Session) -> None:
    """Tell of the batches of torch's data loaders, and apply the settings of loaders."""
    sizes: MutableMapping[Any, LoadedSizes] = WeakIdKeyDictionary()

    def following(original: Function) -> Function:
        inside = within_part(session, "data", original)

        def call(iterator: Any) -> Any:
            if not session.is_watching():
                return original(iterator)
            session.batch_asked_for()
            began = time.perf_counter_ns()
            batch = inside(iterator)
            session.worker_starts.batch_came(iterator, time.perf_counter_ns() - began)
            samples = sizes.setdefault(iterator, LoadedSizes()).count(batch)
            session.batch_loaded(batch, samples, iterator)
            return batch

        return call

    def asking(original: Function) -> Function:
        def call(iterator: Any) -> Any:
            indices = original(iterator)
            sizes.setdefault(iterator, LoadedSizes()).ask(iterator._sampler_iter, indices)
            return indices

        return call

    def init(original: Function) -> Function:
        def call(loader: Any, *given: Any, **named: Any) -> None:
            original(loader, *given, **session.settings.apply_to_loader(named))

        return call

    wrap(dataloader._BaseDataLoaderIter, "__next__", following)
    wrap(dataloader._BaseDataLoaderIter, "_next_index", asking)
    wrap(dataloader.DataLoader, "__init__", init)


def watch_workers(session: Session) -> None:
    """Note how long loaders take to start and end their worker processes within the window."""

    def starting(original: Function) -> Function:
        def call(loader: Any) -> Any:
            known, began = loader._iterator, time.perf_counter_ns()
            iterator = original(loader)
            if loader.num_workers and iterator is not known and session.is_in_window():
                session.worker_starts.started(iterator, loader.num_workers, time.perf_counter_ns() - began)
            return iterator

        return call

    def ending(original: Function) -> Function:
        def call(iterator: Any) -> None:
            began = time.perf_counter_ns()
            original(iterator)
            if session.is_in_window():
                session.worker_starts.ended(time.perf_counter_ns() - began)

        return call

    wrap(dataloader.DataLoader, "__iter__", starting)
    wrap(dataloader._MultiProcessingDataLoaderIter, "_shutdown_workers", ending)


def watch_transfers(session: Session) -> None:
    """Put copies of tensors to the GPU into the part `transfer`, unless another part makes them."""

    def moving(original: Function) -> Function:
        inside = within_part(session, "transfer", original)

        def call(tensor: Tensor, *given: Any, **named: Any) -> Any:
            # Most are of tensors on the GPU, within a network.
            if session.parts.current or tensor.is_cuda or not session.networks.on_gpu:
                return original(tensor, *given, **named)
            return inside(tensor, *given, **named)

        return call

    for name in ("to", "cuda"):
        wrap(torch.Tensor, name, moving)


def watch_autocast(session: Session) -> None:
    """Note the arithmetic that the script chooses by autocast."""

    def enter(original: Function) -> Function:
        def call(context: Any) -> Any:
            if session.is_watching() and context._enabled:
                session.observed.add(str(context.fast_dtype).removeprefix("torch."))
            return original(context)

        return call

    with suppress(AttributeError):
        wrap(torch.autocast, "__enter__", enter)


# Tells a session of the calls of a script's outermost networks.
#
# Networks are seen by torch's global hooks for modules, and only while no network runs: within one there is no hook
# that would cost time or make torch.compile compile again.


class NetworkWatcher:
    """Tells of calls of outermost networks.

    The global hook is taken away while a network runs, and a hook of the network itself tells when its call has ended.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: MutableMapping[nn.Module, bool] = WeakIdKeyDictionary()
        self._key = 0
        self._hooks: Any = nn.modules.module._global_forward_pre_hooks
        self._running: list[tuple[nn.Module, bool]] = []
        self._seen: MutableMapping[nn.Module, bool] = WeakIdKeyDictionary()
        # Those of which a call with gradients was seen.
        self._learning: MutableMapping[nn.Module, bool] = WeakIdKeyDictionary()

    def watch(self) -> None:
        """Begin to watch."""
        handle = nn.modules.module.register_module_forward_pre_hook(self._before_any)
        self._key = handle.id
        _undo.append(lambda: self._hooks.pop(self._key, None))
        wrap(nn.Module, "compile", self._compiling)

    def _before_any(self, module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        """Begin a network's call; of a module without parameters nothing is kept."""
        if torch.compiler.is_compiling() or not self._session.is_watching() or not self._is_network(module):
            return None
        if module not in self._seen:
            self._hook(module)
        self._begin(module)
        changed = self._session.settings.apply_to_inputs(inputs)
        return None if changed is inputs else changed

    def _is_network(self, module: nn.Module) -> bool:
        if module not in self._known:
            self._known[module] = any(True for _ in module.parameters())
        return self._known[module]

    def _hook(self, module: nn.Module) -> None:
        self._note(module)
        hook = module.register_forward_hook(self._after_network, with_kwargs=True, always_call=True)
        _undo.append(hook.remove)

    def _note(self, module: nn.Module) -> None:
        self._seen[module] = True
        self._session.networks.note(module)
        # Once the cell's settings, such as compilation, are applied.
        self._session.samples.watch(module)
        self._session.origins.note_call(module, sys._getframe(2))

    def _begin(self, module: nn.Module) -> None:
        if module not in self._learning and torch.is_grad_enabled():
            # Trainers try the evaluation first.
            self._learning[module] = True
            self._session.origins.note_call(module, sys._getframe(2))
        self._hooks.pop(self._key, None)
        self._running.append((module, self._session.begin_part("forward")))

    def _after_network(self, module: nn.Module, inputs: Any, named: Any, output: Any) -> None:
        """End a network's call, and watch for the next one."""
        if torch.compiler.is_compiling() or not self._running or self._running[-1][0] is not module:
            return
        self._end(module, inputs, named, output)

    def _end(self, module: nn.Module, inputs: Any, named: Any, output: Any) -> None:
        _, opened = self._running.pop()
        if opened:
            self._session.end_part()
        self._hooks[self._key] = self._before_any
        self._session.network_called(module, inputs, named, output)

    def _compiling(self, original: Function) -> Function:
        """Around `Module.compile`, whose modules are called past all hooks from then on."""

        def call(module: nn.Module, *given: Any, **named: Any) -> Any:
            result = original(module, *given, **named)
            compiled = module._compiled_call_impl
            if compiled is not None:
                module._compiled_call_impl = self._around_compiled(module, compiled)
            return result

        return call

    def _around_compiled(self, module: nn.Module, compiled: Function) -> Function:
        @functools.wraps(compiled)
        def call(*inputs: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling() or self._running or not self._session.is_watching():
                return compiled(*inputs, **named)
            if module not in self._seen:
                self._note(module)
            self._begin(module)
            output = None
            try:
                output = compiled(*self._session.settings.apply_to_inputs(inputs), **named)
            finally:
                self._end(module, inputs, named, output)
            return output

        return call


# Tells a session of optimizers that are made and that step, by themselves or by a gradient scaler.


class OptimizerWatcher:
    """Tells of optimizers that are made and that step.

    Torch wraps the `step` of each class of optimizers when the first one of it is made; this wraps around that, so that
    a step of the session ends when all of an optimizer's step has.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._started: set[int] = set()
        self._within: list[torch.optim.Optimizer] = []
        self._opened = False

    def watch(self) -> None:
        """Begin to watch optimizers of classes of which there is none yet."""
        hook = torch.optim.Optimizer.profile_hook_step
        put(torch.optim.Optimizer, "profile_hook_step", staticmethod(lambda step: self._observe(hook(step))))
        self._count_made()

    def watch_all(self) -> None:
        """Begin to watch, also optimizers that were made before.

        Torch's hooks are called within its own range of an optimizer's step, so that a step of the session ends with
        what comes next.
        """
        _undo.append(register_optimizer_step_pre_hook(self._before).remove)
        _undo.append(register_optimizer_step_post_hook(self._after).remove)
        self._count_made()

    def _count_made(self) -> None:
        made = torch.optim.Optimizer.__init__

        @functools.wraps(made)
        def init(optimizer: torch.optim.Optimizer, *given: Any, **named: Any) -> None:
            self._session.finder.optimizer_made()
            made(optimizer, *given, **named)

        put(torch.optim.Optimizer, "__init__", init)

    def _observe(self, step: Function) -> Function:
        @functools.wraps(step)
        def observed(optimizer: torch.optim.Optimizer, *given: Any, **named: Any) -> Any:
            if not self._begins():
                return step(optimizer, *given, **named)
            given, named = self._begin(optimizer, given, named)
            try:
                result = step(optimizer, *given, **named)
            except BaseException:
                self._end()
                raise
            self._end()
            self._stepped(optimizer)
            return result

        return observed

    def _begins(self) -> bool:
        """Whether an optimizer's step is one: those that wrap another, or call their class's step, step once."""
        return not torch.compiler.is_compiling() and not self._within and self._session.is_watching()

    def _before(self, optimizer: torch.optim.Optimizer, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if optimizer in self._within:
            # Its last step has raised an error, which the program has caught.
            self._end()
        if not self._begins():
            return None
        changed, named = self._begin(optimizer, given[1:], named)
        return (optimizer, *changed), named

    def _after(self, optimizer: torch.optim.Optimizer, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if optimizer in self._within:
            self._end()
            self._session.ends_late = True
            self._stepped(optimizer)
            self._session.ends_late = False

    def _begin(
        self, optimizer: torch.optim.Optimizer, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Begin an optimizer's step; returns the arguments that it is to have."""
        self._prepare(optimizer)
        if self._session.first_steps.is_noting():
            self._session.first_steps.note_gradients([optimizer], torch.ones(()))
        self._within.append(optimizer)
        self._opened = self._session.begin_part("optimizer")
        if given and callable(given[0]):
            given = (self._evaluate(given[0]), *given[1:])
        elif callable(named.get("closure")):
            named = {**named, "closure": self._evaluate(named["closure"])}
        return given, named

    def _end(self) -> None:
        self._within.pop()
        self._session.samples.repeats = False
        if self._opened:
            self._session.end_part()

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        if self._session.scaling:
            self._session.scaled_steps.append(optimizer)
        else:
            self._session.optimizer_stepped(optimizer)

    def _evaluate(self, closure: Function) -> Function:
        """Around what computes the loss in an optimizer's step: from its second call on it has the same samples."""
        calls = itertools.count()

        @functools.wraps(closure)
        def call(*given: Any, **named: Any) -> Any:
            self._session.samples.repeats = next(calls) > 0
            return closure(*given, **named)

        return call

    def _prepare(self, optimizer: torch.optim.Optimizer) -> None:
        if id(optimizer) not in self._started:
            self._started.add(id(optimizer))
            self._session.settings.apply_to_optimizer(optimizer)


def watch_scalers(session: Session) -> None:
    """Tell of steps that a gradient scaler makes or skips; they end when the scaler is updated."""
    scaler = torch.amp.GradScaler

    def step(original: Function) -> Function:
        inside = within_part(session, "optimizer", original)

        def call(self: Any, optimizer: torch.optim.Optimizer, *given: Any, **named: Any) -> Any:
            if not session.is_watching() or not self.is_enabled():
                return original(self, optimizer, *given, **named)
            session.scaling, session.scaled_steps = True, []
            try:
                result = inside(self, optimizer, *given, **named)
            finally:
                session.scaling = False
            session.await_update(optimizer, skipped=not session.scaled_steps)
            return result

        return call

    def update(original: Function) -> Function:
        inside = within_part(session, "optimizer", original)

        def call(self: Any, *given: Any, **named: Any) -> Any:
            result = inside(self, *given, **named)
            if session.is_watching():
                session.end_scaled_steps()
            return result

        return call

    def scale(original: Function) -> Function:
        def call(self: Any, outputs: Any) -> Any:
            if session.is_watching() and isinstance(outputs, Tensor):
                session.note_unscaled_loss(outputs)
            return original(self, outputs)

        return call

    wrap(scaler, "step", step)
    wrap(scaler, "update", update)
    wrap(scaler, "scale", scale)


# Tells a session when ranges of the script's own have ended: of torch.profiler, torch.cuda.nvtx and nvtx.


def watch_ranges(session: Session) -> None:
    """Tell of ranges that have ended, by the thread that opened them last."""
    stack: list[str] = []

    def pushing(original: Function) -> Function:
        def call(message: Any, *given: Any, **named: Any) -> Any:
            stack.append(str(message))
            return original(message, *given, **named)

        return call

    def popping(original: Function) -> Function:
        def call(*given: Any, **named: Any) -> Any:
            result = original(*given, **named)
            if stack and session.is_watching():
                session.range_ended(stack.pop())
            return result

        return call

    def leaving(original: Function) -> Function:
        def call(context: Any, *given: Any) -> Any:
            result = original(context, *given)
            if session.is_watching():
                # torch.profiler calls it name, the package nvtx message.
                session.range_ended(str(getattr(context, "name", None) or getattr(context, "message", "")))
            return result

        return call

    for owner, push, pop in ((torch.cuda.nvtx, "range_push", "range_pop"), (nvtx, "push_range", "pop_range")):
        wrap(owner, push, pushing)
        wrap(owner, pop, popping)
    for context in (torch.autograd.profiler.record_function, nvtx.annotate):
        wrap(context, "__exit__", leaving)


def watch_all(session: Session, made_before: bool = False) -> None:
    """Have a session told of everything that makes up a step; made_before: also of optimizers that there are."""
    optimizers = OptimizerWatcher(session)
    if made_before:
        optimizers.watch_all()
    else:
        optimizers.watch()
    watch_scalers(session)
    NetworkWatcher(session).watch()
    watch_backward(session)
    watch_losses(session)
    watch_loaders(session)
    watch_workers(session)
    watch_transfers(session)
    watch_autocast(session)
    # Last, so that what calls its wrappers is the script or torch.
    watch_making(session)
    if session.finder.kind == RANGE:
        # Here, as nobody else takes the wrappers of NVTX.
        watch_ranges(session)
