"""Holds shown outputs against what programs print, where numbers, names of cells and line breaks may differ."""

import re
from collections.abc import Iterable, Sequence
from functools import cache

from profzoo.cell import registry

# What differs from run to run: dates, versions, numbers with units, tools, outcomes, stages of a run, and cells.
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d|\b\d+(?:\.\d+){2,}(?:\+\w+)?")
# A checkout's commit, with a mark of changes; a folder without one has a dash there.
COMMIT = re.compile(r"(?<= )(?=[a-f]*\d)[0-9a-f]{7}\+?(?= )")
NUMBER = re.compile(r"\d[\d.,/]*(?: ?(?:ns|µs|ms|s|min|h|days?|[kMGT]?B|%)(?![\w]))?(?: \d+ (?:min|s)\b)?")
PLURAL = re.compile(r"(?<=# )(\w+?)s\b")
TOOLS = re.compile(r"\b(?:time|torch|nsys|ncu|weights)\b")
STAGE = re.compile(r"\b(?:exports|tables|figures|pages)\b(?= \d+ of \d+ jobs?)")
OUTCOME = re.compile(r"\b(?:faster|slower|undecided|equivalent)\b")
SEVERAL = re.compile(r"cell(?:, cell)+")
LEFT_OUT = ("...", "…")
# Printed before anything else, by Snakemake itself.
PROFILE = "Using workflow specific profile"


def mask(line: str) -> str:
    """Return the form of a line: what does not differ from run to run, without blanks.

    >>> mask("unet train   torch  4.46 s/step  4/15  ~4 min left") == mask("lstm inference time 281 ms/step 1/2 ~75 s left")
    True
    """
    # Cells come first, because names of models have digits.
    text = _cells().sub("cell", " ".join(line.split()))
    text = TOOLS.sub("tool", OUTCOME.sub("outcome", STAGE.sub("stage", text)))
    text = PLURAL.sub(r"\1", NUMBER.sub("# ", TIME.sub("# ", COMMIT.sub("-", text))))
    return "".join(SEVERAL.sub("cell", " ".join(text.split())).split())


@cache
def _cells() -> re.Pattern[str]:
    models = "|".join(sorted(registry.shipped_models(), key=len, reverse=True))
    return re.compile(rf"\b(?:{models})(?:@\w+)?(?: (?:{'|'.join(registry.PHASES)}))?\b")


def find_unprinted(shown: Sequence[str], printed: Iterable[str]) -> str:
    """Return the form of the first shown text that no program printed; empty if all of it was printed.

    A terminal breaks long lines, so that a printed line may be several shown ones.
    """
    forms = sorted({form for line in printed if (form := mask(line))}, key=len, reverse=True)
    left = mask(" ".join(_joined(shown)))
    while left:
        known = next((form for form in forms if left.startswith(form)), "")
        if not known:
            return left[:120]
        left = left.removeprefix(known)
    return ""


def _joined(shown: Sequence[str]) -> list[str]:
    return [line for line in shown if line.strip() not in LEFT_OUT]


def differs(shown: Sequence[str], printed: str) -> str:
    """Say which shown line was not printed exactly so; empty if all lines were, in their order."""
    lines = iter(line.rstrip() for line in printed.splitlines() if not line.startswith(PROFILE))
    return next((line for line in _joined(shown) if line.strip() and line.rstrip() not in lines), "")
