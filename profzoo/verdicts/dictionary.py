"""What the columns of the table of verdicts mean."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, CPU, FRACTION, GPU, RATIO, Column

WAITS: Mapping[str, Column] = {
    "file": Column("File of the line, relative to its package or to the working folder where it lies inside."),
    "line": Column("Number of the line.", COUNT),
    "function": Column("Function that the line is in."),
    "text": Column("The line as it is written."),
    "operation": Column("What waits there, such as `.item()`, `x[mask]`, `bool()` for a tensor in a condition."),
    "range": Column("Part of the step in which it waits; empty outside all parts."),
    "calls": Column("Waits per step, in the step of the warm-up that was observed.", COUNT, "time"),
    "wait_ns": Column(
        "Time per step under nsys that the host waits there; empty where the trace does not tell lines apart.",
        "ns",
        "nsys",
        CPU,
    ),
}
VERDICTS: Mapping[str, Column] = {
    "level": Column("What the verdict is about: `cell`, `kernel`, `layer`, or other settings of the cell."),
    "rank": Column("Place among the verdicts of its kind on the cell, from 1 on.", COUNT),
    "verdict": Column("What holds the row's cell or part of it back, in the words of the report."),
    "metric": Column("Number that the verdict goes by."),
    "value": Column("Value of that number.", "see metric"),
    "threshold": Column("From which value on the verdict holds.", "see metric"),
    "share": Column("Part of the unprofiled step that the verdict is about.", FRACTION, clock=GPU),
    "evidence": Column("Table and columns that the number is from."),
    "cured": Column("Part of that time which the advice would remove.", FRACTION),
    "gain": Column("Expected speedup of the step.", RATIO),
    "gain_low": Column("Lower end of the interval of `gain`.", RATIO),
    "gain_high": Column("Upper end of the interval of `gain`.", RATIO),
    "limit": Column("Speedup at which the host, which has launches to make, would hold the step back.", RATIO),
    "method": Column("How the gain is known: by simulating the traced steps with the change, or by Amdahl's law."),
    "trials": Column("Trials by which such advice is scored.", COUNT),
    "median_error": Column("Median relative error of expected gains in these trials.", RATIO),
    "slowed_down": Column("Part of the advised trials that made the cell slower.", FRACTION),
    "covered": Column("Part of the trials whose measured gain lay within the expected interval.", FRACTION),
    "score": Column("The score in words."),
    "next_step": Column("What to do next, in words."),
    "settings": Column("Settings that follow the advice, as arguments of `python -m models.run`."),
    "by": Column("Who says so: `profzoo`, or `ncu` for advice of Nsight Compute's own rules."),
    "source": Column("Literature or manual behind the rule."),
}
