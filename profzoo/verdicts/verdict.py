"""The verdict: a statement of what limits a cell, a layer or a kernel, with its evidence and expected gain."""

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from profzoo.io.columns import COUNT, GPU, NUMBER, TEXT, Column, with_interval
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.tables.schemas import CELL

if TYPE_CHECKING:
    from profzoo.verdicts.gain_models import RequestedChange


# What the table of verdicts holds.

TIMED_UNDER = "timed_under"
COLUMNS = [
    *CELL, "level", "class", "function", "module", "direction", "rank", "verdict", "metric", "value", "threshold",
    "share", "share_low", "share_high", "evidence", "cured", "gain", "gain_low", "gain_high", "limit", "method",
    "trials", "median_error", "slowed_down", "covered", "score", "next_step", "settings", "timed_under", "by", "source",
]  # fmt: skip
VERDICTS_TABLE = Table(
    columns={
        **shared("model", "phase"),
        "level": Column(TEXT, "What the verdict is about: `cell`, `kernel`, `layer`, or other settings of the cell."),
        **shared("class", "function", "module", "direction"),
        "rank": Column(COUNT, "Place among the verdicts of its kind on the cell, from 1 on.", "count"),
        "verdict": Column(TEXT, "What holds the row's cell or part of it back, in the words of the report."),
        "metric": Column(TEXT, "Number that the verdict goes by."),
        "value": Column(NUMBER.or_missing, "Value of that number.", "see metric"),
        "threshold": Column(NUMBER.or_missing, "From which value on the verdict holds.", "see metric"),
        **with_interval("share", Column(
            NUMBER.or_missing, "Part of the unprofiled step that the advice acts on: no gain is larger than without "
            "it.", "fraction", clock=GPU)),
        "evidence": Column(TEXT, "Table and columns that the number is from."),
        "cured": Column(NUMBER.or_missing, "Part of that time which the advice would remove.", "fraction"),
        **with_interval("gain", Column(
            NUMBER.or_missing, "Expected speedup of the step; a wide interval has only an upper end.", "ratio")),
        "limit": Column(
            NUMBER.or_missing, "Speedup at which the host, which has launches to make, would hold the step back.",
            "ratio"),
        "method": Column(
            TEXT, "How the gain is known: by simulating the traced steps with the change, or by Amdahl's law."),
        "trials": Column(NUMBER.or_missing, "Trials by which such advice is scored.", "count"),
        "median_error": Column(NUMBER.or_missing, "Median relative error of expected gains in these trials.", "ratio"),
        "slowed_down": Column(NUMBER.or_missing, "Part of the advised trials that made the cell slower.", "fraction"),
        "covered": Column(
            NUMBER.or_missing, "Part of the trials whose measured gain lay within the expected interval.", "fraction"),
        "score": Column(TEXT, "The score in words."),
        "next_step": Column(TEXT, "What to do next, in words."),
        "settings": Column(TEXT, "Settings that follow the advice, as arguments of `python -m models.run`."),
        "by": Column(TEXT, "Who says so: `profzoo`, or `ncu` for advice of Nsight Compute's own rules."),
        "source": Column(TEXT, "Literature or manual behind the rule."),
    },
    optional={
        "timed_under": Column(
            TEXT, "Tool under which the step was timed that `share` and `gain` are of, where its report was made "
            "elsewhere: the tool makes steps longer. Empty for an unprofiled step."),
    },
)  # fmt: skip
BY_PROFZOO = "profzoo"
UNDECIDED = "undecided"
# A field that has another name than its column, which is a word of Python.
KERNEL_CLASS = "kernel_class"


@dataclass(frozen=True)
class Verdict:
    """One row of the table of verdicts, without the cell and the rank; fields are its columns, None for no value.

    Fields that are not columns:
        potential: the largest gain that an undecided verdict may have, by which it is sorted.
        change: the change by whose simulation the gain is predicted, and by which verdicts are compared.
        lead: the beginning of the next step, which is still to be put before it.
        about: the share that its rule is about.
        most_share: the largest part of the step that the advice can act on, of which `share` is the part it is about.
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
    timed_under: str | None = None
    by: str = BY_PROFZOO
    potential: float = 1.0
    change: "RequestedChange | None" = None
    lead: str = ""
    about: str = ""
    most_share: float | None = None
    refused: str = ""

    @property
    def sorting_gain(self) -> float:
        """The gain, infinite where it has no limit, or 0 where it is not known."""
        return self.gain or 0.0

    def columns(self) -> dict[str, Any]:
        """Return the verdict's part of a row of the table of verdicts; a gain without a limit is not a number there."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in NO_COLUMNS}
        values = {name: None if value in (math.inf, -math.inf) else value for name, value in values.items()}
        return {"class" if name == KERNEL_CLASS else name: value for name, value in values.items()}


NO_COLUMNS = ("potential", "change", "lead", "about", "most_share", "refused")
