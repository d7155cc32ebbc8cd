"""Defines the command lines that several rules share, and formats file names as words of them."""

import shlex
from collections.abc import Callable, Iterable
from typing import Any

from profzoo.cell import secret_values
from profzoo.cell.config_types import Config
from profzoo.errors import ConfigError
from profzoo.workflow import snakemake_internals
from profzoo.workflow.selection import Wildcards

# Keeps secrets of the command line out of the processes that Snakemake starts, and out of its log.

ADVICE = "write it into a file of your own, and name that by --configfile"


def hide_secrets(workflow: Any, secrets: secret_values.Secrets, here: bool, say: Callable[[str], None]) -> None:
    """Replace secrets from the command line by placeholders in Snakemake's log and in the processes that it starts.

    secrets: keys and values by placeholder. here: whether jobs run on this machine. say: function that prints a line.

    Raises:
        ConfigError: jobs run on other machines, where the placeholders cannot be resolved.
    """
    # Numbers are skipped: the same number may occur anywhere.
    for name, (key, value) in ((name, one) for name, one in secrets.items() if isinstance(one[1], str) and one[1]):
        if not snakemake_internals.give_placeholders(workflow, value, name):
            continue
        if not here:
            raise ConfigError(
                f"{key} is a secret, which --config shows in the list of processes of each node: {ADVICE}"
            )
        say(f"warning: {key} is a secret, which --config shows in the list of processes: {ADVICE}")


# Command of all collecting jobs: it runs the job's tool and writes the sidecar. The locale is fixed, because the tools'
# numbers and messages are parsed in this locale.
COLLECT = "LC_ALL=C python -m profzoo.collect --job {params.job:q} --log {log:q} {params.more:q} {params.made:q}"
# End of other rules' commands, which write each output to a file with the suffix `.partial`. It moves the outputs into
# place and writes a record of their inputs.
KEEP = " && python -m profzoo.records.keep --log {log:q} --input {input:q} --output {output:q}"


def name_outputs(wildcards: Wildcards, output: Any) -> list[str]:
    """Words that name the outputs of a collecting job."""
    return [f"{name}={path}" for name, path in output.items()]


def name_loaded(wildcards: Wildcards, input: Any) -> list[str]:
    """Words that name a collecting job's weights and plan, if it has them."""
    given = {"--load": input.get("weights"), "--plan": input.get("plan")}
    return [word for option, path in given.items() if path for word in (option, str(path))]


def name_loaded_of_sides(sides: Iterable[str], input: Any) -> list[str]:
    """Words that name the weights of those sides of a comparison that load some."""
    pairs = zip(sides, input.get("weights", []), strict=True)
    return [word for side, path in pairs for word in ("--weights", f"{side}={path}")]


def name_tables(input: Any) -> list[str]:
    """Words that name the tables of a comparison's parts and counters, if there are any."""
    given = {"--parts": input.parts, "--counters": input.counters}
    return [word for option, path in given.items() if path for word in (option, path)]


def name_failing(config: Config) -> list[str]:
    """Words that name the outcomes at which a comparison fails, if any are configured."""
    return ["--fail-on", config["fail_on"]] if config["fail_on"] else []


def quote_reports(report: str | None = None, below: str | None = None) -> str:
    """Shell patterns of ncu reports: a single report, and all reports in a folder, if they are given.

    >>> quote_reports("a b.ncu-rep", "more")
    "'a b.ncu-rep' more/*.ncu-rep"
    """
    one = [shlex.quote(report)] if report else []
    return " ".join([*one, *([f"{shlex.quote(below)}/*.ncu-rep"] if below else [])])
