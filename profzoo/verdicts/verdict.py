"""The verdict: a statement of what limits a cell, a layer or a kernel, with its evidence and expected gain."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profzoo.verdicts.gain_models import RequestedChange

BY_PROFZOO = "profzoo"
# A field that has another name than its column, which is a word of Python.
KERNEL_CLASS = "kernel_class"


@dataclass(frozen=True)
class Verdict:
    """One row of the table of verdicts, without the cell and the rank; fields are its columns, None for no value.

    Fields that are no columns:
        potential: the largest gain that an undecided verdict may have, by which it is sorted.
        change: the change by whose simulation the gain is predicted, and by which verdicts are compared.
        lead: the beginning of the next step, which is still to be put before it.
        about: the share that its rule is about.
        refused: words of settings that the rule would rather advise but that the cell cannot run with.
    """

    level: str
    verdict: str
    metric: str
    value: float
    evidence: str
    next_step: str
    kernel_class: str | None = None
    function: str | None = None
    module: str | None = None
    direction: str | None = None
    threshold: float | None = None
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    cured: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    limit: float | None = None
    method: str | None = None
    trials: int | None = None
    median_error: float | None = None
    slowed_down: float | None = None
    covered: float | None = None
    score: str | None = None
    settings: str | None = None
    source: str | None = None
    by: str = BY_PROFZOO
    potential: float = 1.0
    change: "RequestedChange | None" = None
    lead: str = ""
    about: str = ""
    refused: str = ""

    @property
    def sorting_gain(self) -> float:
        """The gain, or 0 where it is not known."""
        return self.gain or 0.0

    def columns(self) -> dict[str, Any]:
        """Return the verdict's part of a row of the table of verdicts."""
        names = [field.name for field in fields(self) if field.name not in NO_COLUMNS]
        return {"class" if name == KERNEL_CLASS else name: getattr(self, name) for name in names}


NO_COLUMNS = ("potential", "change", "lead", "about", "refused")
