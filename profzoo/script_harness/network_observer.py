"""Tells a session of the calls of a script's outermost networks.

Networks are seen by torch's global hooks for modules, and only while no network runs: within one there is no hook that
would cost time or make torch.compile compile again.
"""

import functools
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from profzoo.script_harness.session import Session
from profzoo.script_harness.wrapping import Function, wrap


class NetworkWatcher:
    """Tells of calls of outermost networks.

    The global hook is taken away while a network runs, and a hook of the network itself tells when its call has ended.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
        self._key = 0
        self._hooks: Any = nn.modules.module._global_forward_pre_hooks
        self._running: list[tuple[nn.Module, bool]] = []
        self._seen: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()

    def watch(self) -> None:
        """Begin to watch."""
        handle = nn.modules.module.register_module_forward_pre_hook(self._before_any)
        self._key = handle.id
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
        self._seen[module] = True
        self._session.networks.note(module)
        module.register_forward_hook(self._after_network, always_call=True)

    def _begin(self, module: nn.Module) -> None:
        self._hooks.pop(self._key, None)
        self._running.append((module, self._session.begin_part("forward")))

    def _after_network(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """End a network's call, and watch for the next one."""
        if torch.compiler.is_compiling() or not self._running or self._running[-1][0] is not module:
            return
        self._end(module, inputs, output)

    def _end(self, module: nn.Module, inputs: Any, output: Any) -> None:
        _, opened = self._running.pop()
        if opened:
            self._session.end_part()
        self._hooks[self._key] = self._before_any
        self._session.network_called(module, inputs, output)

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
                self._seen[module] = True
                self._session.networks.note(module)
            self._begin(module)
            output = None
            try:
                output = compiled(*self._session.settings.apply_to_inputs(inputs), **named)
            finally:
                self._end(module, inputs, output)
            return output

        return call
