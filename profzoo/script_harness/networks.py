"""Keeps the outermost networks that a script calls: their ranges, device and parameters."""

from collections import Counter
from collections.abc import Callable

import torch
from torch import nn

from profzoo.harness.module_ranges import REPLICATED
from profzoo.harness.ranges import Ranges
from profzoo.script_harness.outside_settings import OutsideSettings
from profzoo.script_harness.step_finder import MODULE, split_rule


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
    return type(inner.module if isinstance(inner, REPLICATED) else inner).__name__
