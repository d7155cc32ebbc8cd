"""Moves the outputs of a rule's shell command into place, and writes their record.

python -m profzoo.records.keep --log FILE --input FILE ... --output FILE ...

The command has written each output under its name with `.partial` behind it.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from profzoo.errors import DataError, first_error_line
from profzoo.records import atomic_writes, derived_outputs, digests
from profzoo.records.derived_outputs import PARTIAL

# The folder that holds the workflow.
ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.records.keep", description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--input", nargs="*", default=[])
    parser.add_argument("--output", nargs="+", type=Path, required=True)
    parser.add_argument("--passing", action="store_true", help="it is removed once others are made of it")
    options = parser.parse_args(arguments)
    code, read = derived_outputs.split_inputs(options.input, ROOT)
    try:
        atomic_writes.move_into_place((path.with_name(f"{path.name}{PARTIAL}"), path) for path in options.output)
        sources = derived_outputs.source_digests(code, ROOT)
        job = derived_outputs.describe_job(derived_outputs.IN_SHELL, {})
        inputs = {path: digests.compute_digest(path) for path in read}
        derived_outputs.keep_record(options.output, job, inputs, sources, options.passing)
    except (DataError, OSError) as error:
        line = f"profzoo: {first_error_line(error)}"
        with options.log.open("a") as log:
            print(line, file=log)
        print(line, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
