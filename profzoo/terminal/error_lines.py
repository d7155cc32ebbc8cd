"""Shortens Snakemake's messages about a wrong command line or configuration to one line."""

import difflib
import re
from collections.abc import Collection

from profzoo.terminal import phrases

# The function in which profzoo's own checks raise errors; their messages need no traceback.
CHECKED = re.compile(r"^  File .*, in run_checked$", re.MULTILINE)
PLACES = re.compile(r"^(  File .*|\w+(Error|Exception)( in (file|rule) .*)?:)$")
# The same raised by an input function, which Snakemake surrounds with the rule and its wildcards.
FROM_INPUT = re.compile(
    r"^InputFunctionException in rule .*?^  WorkflowError:\n    (?P<said>.*?)\nWildcards:", re.M | re.S
)
MISSING = re.compile(r"^No rule to produce (\S+) \(if you use input functions", re.MULTILINE)
# A file that a rule needs and no rule makes.
NEEDED = re.compile(r"^MissingInputException in rule (\w+)\b", re.MULTILINE)
AFFECTED = re.compile(r"^\s+affected files:\n((?:\s+.+\n?)+)", re.MULTILINE)
SHOWN = 2
# Behind a file that Snakemake looks for in a storage, as profiles/kubernetes has one.
STORED = " (in storage)"
# Names of results that only cells on several GPUs have, such as `train.nsys-ranks`, and what is said of them.
OF_SEVERAL_GPUS = re.compile(r"\.(\w+-ranks|torch-collectives|torch-skew)\b")
SET_GPUS = "only cells on several GPUs have it: set gpus to 2 or more"
HELP = "`snakemake help` says what can be made"
# Messages at the end of a run that repeat failures which were reported before.
TOLD = (
    "At least one job did not complete successfully.",
    "non-zero exit status",
    "Exiting because a job execution failed",
)


def shorten_error(message: str, targets: Collection[str], collects: bool) -> str:
    """Return Snakemake's message about an error, shortened; empty if the error has been reported before.

    targets: names of rules that a user may type. collects: whether the run may measure (the setting `collect`).

    >>> message = "MissingRuleException:\\nNo rule to produce figuers (if you use input functions ..."
    >>> shorten_error(message, ["figures"], collects=True)
    "no rule or file 'figuers': did you mean 'figures'? `snakemake help` says what can be made"
    >>> where = "InputFunctionException in rule x in file y:\\nError:\\n"
    >>> shorten_error(where + "  WorkflowError:\\n    set z\\nWildcards:\\n", [], collects=True)
    'set z'
    """
    if any(line in message for line in TOLD):
        return ""
    if missing := MISSING.search(message):
        if OF_SEVERAL_GPUS.search(missing[1]):
            return f"no rule or file '{missing[1]}': {SET_GPUS}"
        near = difflib.get_close_matches(missing[1], targets, n=1)
        hint = f": did you mean '{near[0]}'? {HELP}" if near else f"; {HELP}"
        return f"no rule or file '{missing[1]}'{hint}"
    if (needed := NEEDED.search(message)) and (files := AFFECTED.search(message)):
        return _explain_needed(files[1], needed[1], collects)
    if asked := FROM_INPUT.search(message):
        return asked["said"]
    if CHECKED.search(message):
        return "\n".join(line for line in message.splitlines() if line.strip() and not PLACES.match(line))
    return message


def _explain_needed(affected: str, rule: str, collects: bool) -> str:
    """Explain why no rule makes what a rule needs; the advice names a setting only where that is the reason.

    affected: Snakemake's list of the files.
    """
    files = affected.replace(STORED, "").split()
    if STORED in affected:
        return (
            f"{rule} needs {phrases.join_first_names(files, SHOWN)} from the storage of the profile, and finds nothing "
            "there: call snakemake in the project on the volume that pods mount, at the path of default-storage-prefix"
        )
    line = f"no rule of this run makes {phrases.join_first_names(files, SHOWN)}, which {rule} needs"
    if not collects:
        # The rules that measure are left out.
        return f"{line}; with collect=false nothing is measured"
    if all(OF_SEVERAL_GPUS.search(file) for file in files):
        return f"{line}: {SET_GPUS}"
    return f"{line}; {HELP}"
