"""Keeps secrets of the command line out of the processes that Snakemake starts, and out of its log."""

from collections.abc import Callable
from typing import Any

from profzoo.cell import secret_values
from profzoo.errors import ConfigError
from profzoo.workflow import snakemake_internals

ADVICE = "write it into a file of your own, and name that by --configfile"


def hide_secrets(workflow: Any, secrets: secret_values.Secrets, say: Callable[[str], None]) -> None:
    """Replace secrets from the command line by placeholders in Snakemake's log and in the processes that it starts.

    secrets: keys and values by placeholder. say: function that prints a line.

    Raises:
        ConfigError: jobs run on other machines, where the placeholders cannot be resolved.
    """
    # Numbers are skipped: the same number may occur anywhere.
    for name, (key, value) in ((name, one) for name, one in secrets.items() if isinstance(one[1], str) and one[1]):
        if not snakemake_internals.give_placeholders(workflow, value, name):
            continue
        if not workflow.local_exec:
            raise ConfigError(
                f"{key} is a secret, which --config shows in the list of processes of each node: {ADVICE}"
            )
        say(f"warning: {key} is a secret, which --config shows in the list of processes: {ADVICE}")
