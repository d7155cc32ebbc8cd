"""What of Snakemake is used that its documentation does not promise, in one place; a test says what a version lacks.

Snakemake's own locks name no owner, so that one which a killed run has left has to be removed by hand (9.27). Here each
has the run that holds it in its first line, and is removed once that has ended.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

# Whose modules import each other: only by this one first do they load.
import snakemake.cli
from snakemake.dag import DAG
from snakemake.exceptions import LockException, WorkflowError
from snakemake.persistence import ParamsChange
from snakemake.persistence.file import FilePersistence
from snakemake.settings.types import DAGSettings

from profzoo import planning
from profzoo.cell import secret_values
from profzoo.errors import ConfigError
from profzoo.machine import file_locks, lock_owner
from profzoo.machine.lock_owner import Owner
from profzoo.planning import Decision
from profzoo.records import digests
from profzoo.records.output_status import OutputVerdict

# What is taken over, and what that calls.
PERSISTENCE = (
    "lock", "locked", "_read_locks", "_write_locks", "_delete_locks", "cleanup_locks", "all_inputfiles",
    "all_outputfiles", "unlock", "path",
)  # fmt: skip
# Of a workflow's settings of its DAG: whether files that a killed job was making are made again.
INCOMPLETE = "force_incomplete"
# Below Snakemake's own folder: a file of each run that holds locks, and one that is locked while locks change.
OWNERS, CHANGING = "profzoo/owners", "profzoo/locks.changing"
MARK = "# held by profzoo's run "
LOCKS = "[0-9]*.*put.lock"
# Of jobs that are made again because of their content, by their outputs: why.
Outputs = tuple[str, ...]
_reasons: dict[Outputs, str] = {}
_update_needrun = DAG.update_needrun


def missing() -> list[str]:
    """What this version of Snakemake lacks of all that is used here, by name; empty where nothing is."""
    needed: dict[str, tuple[Any, tuple[str, ...]]] = {
        "snakemake.persistence.file.FilePersistence": (FilePersistence, PERSISTENCE),
        "snakemake.workflow": (snakemake.workflow, ("FilePersistence",)),
        "snakemake.settings.types.DAGSettings": (DAGSettings, (INCOMPLETE,)),
        "snakemake.dag.DAG": (DAG, ("update_needrun", "needrun_jobs", "reason")),
    }
    return [f"{owner}.{name}" for owner, (it, names) in needed.items() for name in names if not hasattr(it, name)]


def take_over(incomplete: bool) -> None:
    """Have a killed run leave nothing that the next one of this process would ask its user about.

    incomplete: files that a killed job was making are made again, whatever options say.
    """
    if lacking := missing():
        print(
            f"profzoo: warning: Snakemake {snakemake.__version__} has no {', '.join(lacking)}: after a run that was "
            "killed, type `snakemake --unlock`, and --rerun-incomplete with the next run",
            file=sys.stderr,
        )
        return
    Persistence.again = incomplete
    snakemake.workflow.FilePersistence = Persistence


class Persistence(FilePersistence):
    """Snakemake's, with locks that name their owner."""

    again: ClassVar[bool] = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._held: tuple[Owner, int] | None = None
        # Who holds what is asked for, in words, once somebody does.
        self._holder: Owner | None = None
        super().__init__(*arguments, **named)
        if self.again and self.dag is not None:
            setattr(self.dag.workflow.dag_settings, INCOMPLETE, True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """As Snakemake's, but no other run comes between the look for locks and this run's own.

        Raises:
            WorkflowError: another run makes the same files; it says which, where the lock names one.
        """
        try:
            with self._changing():
                self._remove_left()
                if self.locked:
                    raise WorkflowError(_refused(self._holder)) if self._holder else LockException()
                self._write_locks("input", map(str, self.all_inputfiles()))
                self._write_locks("output", map(str, self.all_outputfiles()))
            yield
        finally:
            self.unlock()

    def cleanup_locks(self) -> None:
        """Remove all locks, as their user wants it, whoever holds them."""
        super()._delete_locks()

    def _read_locks(self) -> Iterator[tuple[str, str]]:
        """Locks of those that live, or may."""
        for path, owner, files in self._found():
            if owner is None or not lock_owner.is_gone(owner, self._owners):
                self._holder = owner
                yield from ((path.name.split(".")[1], file) for file in files)

    def _remove_left(self) -> None:
        """Remove the locks of runs that have ended."""
        removed = set[Owner]()
        for path, owner, _ in self._found():
            if owner and lock_owner.is_gone(owner, self._owners):
                path.unlink()
                removed.add(owner)
        for owner in removed:
            print(f"profzoo: removed the lock of a run that was killed: {owner}", file=sys.stderr)
        # Last, as these tell whose the locks are.
        lock_owner.remove_dead_owners(self._owners)

    def _found(self) -> Iterator[tuple[Path, Owner | None, list[str]]]:
        """Each lock with its owner, as far as it names one, and the files that it is for."""
        for path in sorted(Path(self.path, "locks").glob(LOCKS)):
            with contextlib.suppress(FileNotFoundError):
                first, *files = lines = path.read_text(errors="replace").split("\n")
                told = first.startswith(MARK)
                owner = lock_owner.parse_owner(first.removeprefix(MARK)) if told else None
                yield path, owner, [*map(str.strip, files if told else lines)]

    def _write_locks(self, lock_type: str, keys: Iterable[str]) -> None:
        if not (files := list(keys)):
            return
        self._held = self._held or lock_owner.start_owner(self._owners)
        # Another run that ends may have removed the folder.
        Path(self.path, "locks").mkdir(exist_ok=True)
        super()._write_locks(lock_type, [f"{MARK}{lock_owner.format_owner(self._held[0])}", *files])

    def _delete_locks(self) -> None:
        """Remove this run's alone, where Snakemake would remove those of other runs in this folder, too."""
        for path in self._lockfile.values():
            Path(path).unlink(missing_ok=True)
        self._lockfile.clear()
        if self._held:
            owner, descriptor = self._held
            Path(self._owners, owner.file).unlink(missing_ok=True)
            os.close(descriptor)
            self._held = None

    @property
    def _owners(self) -> Path:
        return Path(self.path, OWNERS)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """While no other run of this folder looks for locks to remove, or writes some."""
        path = Path(self.path, CHANGING)
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_locks.hold_lock(path):
            yield


def _refused(owner: Owner) -> str:
    advice = "wait until it has ended, or stop it"
    if not lock_owner.is_on_this_host(owner):
        advice += "; if it was killed there, start the next run there, or type `snakemake --unlock`"
    return f"another run makes the same files in this folder, {owner}: {advice}"


def judge_by_content(root: Path, say: Callable[[str], None]) -> None:
    """From now on, have Snakemake take for done what records say is done, and run again what they say is not.

    root: the folder that holds the workflow. say: prints a line, once.
    """
    said: set[str] = set()
    again: dict[Outputs, OutputVerdict] = {}

    async def update_needrun(dag: Any, create_inventory: bool = False) -> None:
        # After a checkpoint all is judged once more, while jobs run whose files and records are half of the old ones.
        decided = {_outputs(job) for job in dag._needrun}
        made = planning.decide(dag, root, lambda job: _outputs(job) in decided)
        made.redone |= {job: again[_outputs(job)] for job in dag.jobs if _outputs(job) in decided & again.keys()}
        again.update({_outputs(job): verdict for job, verdict in made.redone.items()})
        await _update(dag, made, create_inventory)
        # A job that reads a damaged file says so itself.
        read = set() if dag.workflow.dryrun else {str(path) for job in dag.needrun_jobs() for path in job.input}
        for line in planning.lines(made, read):
            if line not in said:
                said.add(line)
                say(line)
        if not dag.workflow.dryrun:
            digests.save_digests(planning.DIGESTS)

    DAG.update_needrun = update_needrun


def conceal(workflow: Any, secrets: secret_values.Secrets, say: Callable[[str], None]) -> None:
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
    return _reasons.get(_outputs(job))


def _outputs(job: Any) -> Outputs:
    """What a job makes, by which it is known: it is another object once more is known of its inputs."""
    return tuple(map(str, job.output))


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
        _reasons[_outputs(job)] = planning.why(verdict)


def _explain(reason: Any, verdict: OutputVerdict) -> None:
    """Say by Snakemake's own words why a job runs, in the place of that somebody forced it."""
    reason.forced = False
    reason.updated_input.update(map(str, verdict.others))
    if verdict.settings or not verdict.others:
        reason.params_changed = ParamsChange(only_new=set(verdict.why[:2]))
