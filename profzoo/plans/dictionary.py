"""What the columns of the table of plans mean."""

from collections.abc import Mapping

from profzoo.io.columns import COUNT, FRACTION, RATIO, Column

PLANS: Mapping[str, Column] = {
    "rank": Column("Place among the plans of the cell, from 1 on; 1 is expected to help most.", COUNT),
    "settings": Column("Settings that are applied together, as arguments of `python -m models.run`."),
    "changes": Column("What the settings change, in plain words."),
    "gain": Column("Expected speedup of the step with all these settings.", RATIO),
    "gain_low": Column("Lower end of the interval of `gain`.", RATIO),
    "gain_high": Column("Upper end of the interval of `gain`.", RATIO),
    "outlook": Column("What the interval says: whether the settings are expected to help, or may not help."),
    "verdicts": Column("Verdicts that could advise the settings."),
    "advised": Column("Whether a verdict on the cell advises exactly these settings."),
    "method": Column(
        "How the gain is known: by simulating the traced steps with the combined change, or by Amdahl's law."
    ),
    "evidence": Column("What was simulated, and the rows of the table of verdicts that are about these settings."),
    "trials": Column("Trials by which such plans are scored.", COUNT),
    "median_error": Column("Median relative error of expected gains in these trials.", RATIO),
    "covered": Column("Part of the trials whose measured gain lay within the expected interval.", FRACTION),
    "score": Column("The score in words."),
    "command": Column("Command that compares the cell with itself under these settings."),
    "not_possible": Column("Why the cell cannot have these settings; empty where it can."),
}
