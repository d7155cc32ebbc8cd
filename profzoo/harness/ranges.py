"""Opens named ranges of a step, in NVTX domain `profzoo` and as torch.profiler ranges."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import nvtx
from torch import nn
from torch.profiler import record_function

from profzoo.harness import module_ranges
from profzoo.range_names import DOMAIN, LAUNCHING, STEP, WINDOW, make_nvtx_name, make_torch_name

# Environment variable, set for profilers that read module ranges from NVTX.
MODULES = "PROFZOO_MODULES"


class Ranges:
    """Opens ranges: `with ranges("forward"): ...`."""

    def __init__(self) -> None:
        self._domain = nvtx.get_domain(DOMAIN)
        self._attributes = {
            name: self._domain.get_event_attributes(message=make_nvtx_name(name)) for name in (WINDOW, STEP, *LAUNCHING)
        }
        self._openers = [module_ranges.nvtx_range] * (os.environ.get(MODULES) == "1")
        # Networks whose modules have ranges, each with what their paths begin with.
        self.networks: list[tuple[nn.Module, str]] = []
        self._begun: list[tuple[str, record_function | None]] = []
        # Whether ranges go to torch.profiler too.
        self._torch_ranges = False
        # Callback that receives the name of each range as it ends.
        self.closed: Callable[[str], None] | None = None

    def open(self, name: str) -> None:
        """Open a range on the calling thread; `close` on the same thread ends it."""
        self._domain.push_range(self._attributes[name])

    def close(self) -> None:
        """Close the range that was opened last."""
        self._domain.pop_range()

    def watch(self, torch_ranges: bool, torch_modules: bool) -> None:
        """Set whether step ranges also go to torch.profiler (microseconds each); module ranges, once on, stay on."""
        self._torch_ranges = torch_ranges
        if torch_modules and module_ranges.torch_range not in self._openers:
            self._openers.append(module_ranges.torch_range)
            for network, prefix in self.networks:
                module_ranges.mark_modules(network, module_ranges.torch_range, prefix)

    def mark(self, network: nn.Module, prefix: str = "") -> None:
        """Open a range around each call of the network's modules, if module ranges are enabled."""
        self.networks.append((network, prefix))
        for opener in self._openers:
            module_ranges.mark_modules(network, opener, prefix)

    def begin(self, name: str) -> None:
        """Open a range, in torch.profiler too where ranges go there; `end` on the same thread ends it."""
        self.open(name)
        inner = record_function(make_torch_name(name)) if self._torch_ranges else None
        if inner:
            inner.__enter__()
        self._begun.append((name, inner))

    def end(self) -> None:
        """End the range that was begun last."""
        name, inner = self._begun.pop()
        if inner:
            inner.__exit__(None, None, None)
        self.close()
        if self.closed:
            self.closed(name)

    @property
    def current(self) -> str:
        """Name of the range that was begun last and is open; empty if there is none, or only the step's."""
        name = self._begun[-1][0] if self._begun else STEP
        return "" if name == STEP else name

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Open a range of that name around the body, on the calling thread."""
        self.begin(name)
        try:
            yield
        finally:
            self.end()
