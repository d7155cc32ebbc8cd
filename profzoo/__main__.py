"""Commands that need no workflow: `python -m profzoo run -- python train.py`."""

import sys
from collections.abc import Sequence

from profzoo import script_run, versions

COMMANDS = {"run": script_run.main}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that the first word names; returns the exit code."""
    if too_old := versions.explain_too_old():
        print(f"profzoo: {too_old}", file=sys.stderr)
        return 2
    first, *rest = (sys.argv[1:] if words is None else list(words)) or [""]
    if first not in COMMANDS:
        print(
            f"usage: python -m profzoo {{{','.join(COMMANDS)}}} ...; for the rest, see `snakemake --list`",
            file=sys.stderr,
        )
        return 0 if first in ("-h", "--help") else 2
    return COMMANDS[first](rest)


if __name__ == "__main__":
    sys.exit(main())
