"""How documented commands are checked, and what each needs in the folder where it runs.

Entries name commands by their words, never by their page: pages move.
"""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import yaml

from profzoo.plans import recipes
from tests.documentation.commands import Command, unwrap
from tests.documentation.pages import PROJECT, Block
from tests.workflow import test_extending


class Way(Enum):
    """How a block or command is checked."""

    RUN = "run"
    PLANNED = "planned by a dry run"
    ARGUMENTS = "arguments read by the program"
    TARGET = "targets of the Makefile"
    CONFIGURATION = "read as configuration"
    PRINTED = "output compared with what is printed"
    ELSEWHERE = "run by another test"
    NOT_HERE = "not run"


@dataclass(frozen=True)
class Check:
    """A way, and why this one or which test.

    inner: the command that is planned: that of a container or batch system, or with a reader's own words; else empty.
    """

    way: Way
    why: str = ""
    inner: tuple[str, ...] = ()


# Programs that no test runs, and why.
CHANGES = "it changes the machine or the system's packages, not the project"
CONTAINER = "it builds or starts a container, for which this machine has no privileges or no network"
BATCH = "it needs a batch system"
REMOTE = "it needs another machine or a network"
SHELL = "it only prepares the shell; `bash -n` reads its line"
NOT_RUN = {
    **dict.fromkeys(("apptainer", "buildah", "chroot", "docker", "mmdebstrap", "podman"), CONTAINER),
    **dict.fromkeys(("sbatch", "salloc", "srun", "squeue", "sacct", "qsub", "bsub", "kubectl", "module"), BATCH),
    **dict.fromkeys(("git", "ssh", "scp", "curl", "wget"), REMOTE),
    **dict.fromkeys(("sudo", "pip", "pipx", "uv", "uvx", "apt", "apt-get", "modprobe", "conda"), CHANGES),
    **dict.fromkeys(("export", "cd", ".", "source", "set", "mkdir", "cp", "mv", "ls", "echo", "cat", "id", "rm",
                     "head", "tail", "less", "grep", "tar"), SHELL),
    **dict.fromkeys(("ncu", "nsys", "nvidia-smi"), "it needs NVIDIA's profilers or driver; tests/gpu run them"),
}  # fmt: skip
# Commands that no dry run can plan, and why.
NOT_PLANNED = {
    "snakemake --unlock": "it removes the lock of a run that was killed",
    "snakemake compare": "it stands for the target; a candidate must be named with it",
    "snakemake results/tables.json --config collect=false": "tests/workflow/test_columns.py runs it on results",
    "snakemake --report report.zip": "tests/workflow/test_targets.py runs it on results",
    "snakemake -s path/to/profzoo/Snakefile -d folder": "tests/workflow/test_module.py runs it from another folder",
}
# Commands that really run, besides their plans.
RUN = r"snakemake (status|help|verify|clean|-n clean|status --config batch=7)( --config models=lstm)?"
# Words that stand for a reader's own, and what is planned instead; what stands for more words of a kind is left out.
FORMS = {
    "models=...": "models=lstm",
    # A file that the reader writes into models/.
    "models=mine": "models={mine: {module: mine}}",
    "FILE": "results/lstm/train.time.csv",
    "…": "results/lstm/train.time.csv",
    "...": "",
    "PART": "start",
}
FORM = re.compile(r"^results/\{\w+\}(\{,@\w+\})?")
BY_EXTENDING, BY_RECIPES = "tests/workflow/test_extending.py", "tests/unit/test_recipes.py and tests/gpu/test_plans.py"
# Configurations under which a command is planned, where its page describes them in words.
MINE = "variants: {mine: {precision: bf16}}\n"
CONFIGURED: Mapping[str, str] = {"candidate=mine": MINE}


def judge_command(command: Command, page: str) -> Check:
    """Say how a command is checked; page: text of its page.

    Raises:
        ValueError: nothing is declared for its program.
    """
    words, text = command.words, command.text
    if _of_extending(text, page):
        return Check(Way.ELSEWHERE, BY_EXTENDING)
    if words[0] == "snakemake":
        return _judge_snakemake(words, text)
    if words[0] in ("python", "python3") and "-m" in words[:2]:
        if words[2] == "pytest":
            return Check(Way.ELSEWHERE, "the suite itself")
        return Check(Way.ARGUMENTS, "", fill_in(words))
    if words[0] == "profzoo":
        return Check(Way.ARGUMENTS, "", ("python", "-m", *words))
    if words[0] == "make":
        return Check(Way.TARGET)
    if words[0] in ("bash", "sh") or "/" in words[0]:
        return Check(Way.ARGUMENTS)
    if words[0] in NOT_RUN:
        return Check(Way.NOT_HERE, NOT_RUN[words[0]], unwrap(words))
    raise ValueError(
        f"{command.place}: nothing says how `{text}` is checked: add {words[0]} to NOT_RUN in "
        "tests/documentation/declared.py with the reason, or a way to check it"
    )


def _judge_snakemake(words: Sequence[str], text: str) -> Check:
    if text in NOT_PLANNED:
        return Check(Way.NOT_HERE, NOT_PLANNED[text])
    return Check(Way.PLANNED, "", fill_in(words))


def fill_in(words: Sequence[str]) -> tuple[str, ...]:
    """Replace words that stand for a reader's own, such as `FILE`.

    >>> fill_in(["snakemake", "--force", "FILE", "..."]), fill_in(["snakemake", "results/{model}/train.time.csv"])
    (('snakemake', '--force', 'results/lstm/train.time.csv'), ('snakemake', 'results/lstm/train.time.csv'))
    """
    return tuple(filter(None, (FORM.sub("results/lstm", FORMS.get(word, word)) for word in words)))


def _of_extending(text: str, page: str) -> bool:
    """Whether the test of the page on extending runs the command."""
    own, ran = _of_page()
    return page == own and text in ran


def of_extending(block: Block) -> bool:
    """Whether the test of the page on extending writes the block into a file, or runs its commands."""
    if (PROJECT / block.page) != test_extending.PAGE:
        return False
    written = {one.text for one in _written_files()}
    return block.text in written or block.language == "toml"


def of_recipe(block: Block) -> bool:
    """Whether the tests of recipes run the block, in a small program or on a GPU."""
    return block.text.rstrip("\n") in {one.fill(one.patterns).lines for one in recipes.load_recipes() if one.setting}


def prints(command: Command) -> bool:
    """Whether the output that a page shows after a command is that of a program of this project."""
    return command.words[0] in ("snakemake", "make") or command.words[:2] == ("python", "-m")


@cache
def _of_page() -> tuple[str, frozenset[str]]:
    """The page on extending, and the commands that its test runs."""
    return test_extending.PAGE.read_text(), frozenset(shlex.join(shlex.split(one)) for one in test_extending.PRINTED)


@cache
def _written_files() -> tuple[test_extending.Written, ...]:
    return tuple(test_extending.files(test_extending.PAGE.read_text()))


def name_yaml(block: Block, options: Collection[str]) -> str:
    """Return the kind of a YAML file that is not a configuration, by its keys; empty if none is declared.

    options: long options of Snakemake, which are the keys of a profile.
    """
    found = yaml.safe_load(block.text)
    if not isinstance(found, Mapping):
        return ""
    if set(found) == {"partitions"}:
        return "partitions"
    if "jobs" in found and isinstance(found["jobs"], Mapping):
        return "actions"
    if "judge" in found:
        return "gate"
    return "profile" if len(set(found) & set(options)) * 2 > len(found) else ""
