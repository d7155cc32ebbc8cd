"""What the columns of the table of trials mean."""

from collections.abc import Mapping

from profzoo.compare import numeric_dictionary
from profzoo.io.columns import COUNT, GPU, NINETEEN_OF_TWENTY, RATIO, Column

TRIALS: Mapping[str, Column] = {
    "settings": Column("Name of the settings that were tried."),
    "words": Column("The settings as arguments of `python -m models.run`."),
    "advised_by": Column("Verdict whose advice the settings are."),
    "expected": Column("Expected speedup.", RATIO),
    "expected_low": Column("Lower end of the interval of `expected`.", RATIO),
    "expected_high": Column("Upper end of the interval of `expected`.", RATIO),
    "base_ns": Column(
        "Median step of the cell as it is, in the rounds in which the settings ran as well.", "ns", "time", GPU
    ),
    "ns": Column("Median step with the settings.", "ns", "time", GPU),
    "gain": Column(
        "Measured speedup: time per sample of the cell as it is, over that with the settings.",
        RATIO,
        "time",
        GPU,
        NINETEEN_OF_TWENTY,
    ),
    "processes": Column("Processes that ran with the settings.", COUNT),
    "verdict": Column(
        "`faster` (with the settings), `slower`, `equivalent` or `undecided`; `different` if it is faster and computes "
        "something else; `failed`, `refused` or `not tried`."
    ),
    "outcome": Column(
        "`hit` or `miss` of what was expected, `slowed down` where advice did; empty where nothing was expected."
    ),
    "advised": Column("Whether a verdict advised the settings."),
    "chosen": Column("Whether the settings are the best ones that were found."),
    **numeric_dictionary.ABOUT,
    "loss_difference": Column("Difference of the last loss, relative to that of the cell as it is.", RATIO, "time"),
    "output_difference": Column(
        "Largest difference of the last outputs, relative to the largest of the cell as it is.", RATIO, "time"
    ),
    "why": Column("Why the settings failed, were refused or were not tried."),
    "clocks": Column(
        "Mean SM clocks of the cell as it is and with the settings, and their limits, if the clocks differ."
    ),
}
