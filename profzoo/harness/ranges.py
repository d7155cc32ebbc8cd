"""Named ranges of a step, in NVTX domain `profzoo` and, under torch.profiler, as its own ranges."""

from collections.abc import Iterator
from contextlib import contextmanager

import nvtx
from torch.profiler import record_function

from profzoo.range_names import DOMAIN, PARTS, STEP, WINDOW


class Ranges:
    """Opens ranges: `with ranges("forward"): ...`."""

    def __init__(self, torch_ranges: bool = False) -> None:
        """torch_ranges: also open a torch.profiler.record_function, which costs some microseconds."""
        self._domain = nvtx.get_domain(DOMAIN)
        self._attributes = {name: self._domain.get_event_attributes(message=name) for name in (WINDOW, STEP, *PARTS)}
        self.torch_ranges = torch_ranges

    def open(self, name: str) -> None:
        """Open a range of that name on the calling thread, to be ended by `close` on the same."""
        self._domain.push_range(self._attributes[name])

    def close(self) -> None:
        """End the range that was opened last."""
        self._domain.pop_range()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """A range of that name around the body, on the calling thread."""
        self.open(name)
        try:
            if self.torch_ranges:
                with record_function(f"{DOMAIN}:{name}"):
                    yield
            else:
                yield
        finally:
            self.close()
