"""What of Snakemake is used that its documentation does not promise, in one place; a test says what a version lacks."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Whose modules import each other: only by this one first do they load.
import snakemake.cli  # noqa: F401
from snakemake.dag import DAG
from snakemake.persistence import ParamsChange

from profzoo import planning
from profzoo.cell import concealed
from profzoo.errors import ConfigError
from profzoo.planning import Decision
from profzoo.records import digests
from profzoo.records.judging import Verdict

# Of jobs that are made again because of their content, by their outputs: why.
_reasons: dict[tuple[str, ...], str] = {}
_update_needrun = DAG.update_needrun


def judge_by_content(root: Path, say: Callable[[str], None]) -> None:
    """From now on, have Snakemake take for done what records say is done, and run again what they say is not.

    root: the folder that holds the workflow. say: prints a line, once.
    """
    said: set[str] = set()

    async def update_needrun(dag: Any, create_inventory: bool = False) -> None:
        made = planning.decide(dag, root)
        for line in planning.lines(made):
            if line not in said:
                said.add(line)
                say(line)
        await _update(dag, made, create_inventory)
        if not dag.workflow.dryrun:
            digests.save(planning.DIGESTS)

    DAG.update_needrun = update_needrun


def conceal(workflow: Any, secrets: concealed.Secrets, say: Callable[[str], None]) -> None:
    """Have Snakemake hand placeholders for secrets to the processes that it starts, and note no others in its log.

    secrets: by placeholder; what the command line gave of them is what Snakemake knows. say: prints a line.

    Raises:
        ConfigError: the jobs run elsewhere, and could not know what the placeholders stand for.
    """
    told = workflow.config_settings
    # A number may stand anywhere.
    for name, (key, value) in ((name, one) for name, one in secrets.items() if isinstance(one[1], str) and one[1]):
        changed = [str(word).replace(value, name) for word in told.config_args or []]
        if changed == list(told.config_args or []):
            continue
        if not workflow.local_exec:
            raise ConfigError(f"{key} is a secret, which --config shows in the list of processes of each node: write it"
                              " into a file of your own, and name that by --configfile")  # fmt: skip
        say(f"warning: {key} is a secret, which --config shows in the list of processes: write it into a file of your"
            " own, and name that by --configfile")  # fmt: skip
        told.config_args = changed
        # Its log begins with them.
        sys.argv[1:] = [word.replace(value, name) for word in sys.argv[1:]]


def reason(job: Any) -> str | None:
    """Why a job's outputs are made again, where their content is the reason."""
    return _reasons.get(tuple(map(str, job.output)))


async def _update(dag: Any, made: Decision, create_inventory: bool) -> None:
    """Snakemake's own judgement, with jobs that are done left out, and those that must run forced."""
    forced = {str(path) for job in made.redone for path in job.output} - dag.forcefiles
    added = made.done - dag._finished
    dag.forcefiles |= forced
    dag._finished |= added
    try:
        await _update_needrun(dag, create_inventory)
    finally:
        dag._finished -= added
        dag.forcefiles -= forced
    dag._len = len(dag._finished | dag._needrun)
    for job, verdict in made.redone.items():
        _explain(dag.reason(job), verdict)
        _reasons[tuple(map(str, job.output))] = planning.why(verdict)


def _explain(reason: Any, verdict: Verdict) -> None:
    """Say by Snakemake's own words why a job runs, in the place of that somebody forced it."""
    reason.forced = False
    reason.updated_input.update(map(str, verdict.others))
    if verdict.settings or not verdict.others:
        reason.params_changed = ParamsChange(only_new=set(verdict.why[:2]))
