"""Collects what a job describes: `python -m profzoo.collect --job JSON --log FILE NAME=FILE ...`.

The names are those of the rule's outputs. The log begins with the command that all this comes to.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from profzoo.collect import job_run
from profzoo.records import import_graph


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.collect", description=__doc__)
    parser.add_argument("--job", type=json.loads, required=True, help="JSON: tool, cell, environment, options")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--load", type=Path, help="weights that the cell starts with")
    parser.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="SIDE=FILE",
        help="weights that one of several sides starts with",
    )
    parser.add_argument("--plan", type=Path, help="JSON file of a plan, whose options precede the others")
    parser.add_argument("made", nargs="+", metavar="NAME=FILE", help="files to make, including `sidecar`")
    options = parser.parse_args(arguments)
    import_graph.load_statements()
    made = {name: Path(path) for name, _, path in (word.partition("=") for word in options.made)}
    weights = dict(word.split("=", 1) for word in options.weights)
    job = options.job | ({"weights": weights} if weights else {})
    return job_run.run_job(job, made, options.log, options.load, options.plan)


if __name__ == "__main__":
    sys.exit(main())
