"""Decides on a pull request by judgements of the programs that its base names, and writes the comment.

What runs is named by `.profzoo.yaml` of the base alone, because whoever opens a pull request writes the head. Texts of
programs stand in the comment as code whose marks are entities, so that they can form no Markdown, HTML or mention.
"""

import importlib
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from profzoo.errors import ConfigError, first_error_line, suggest_nearest
from profzoo.formatting import fixed, format_ns
from profzoo.io import strict_yaml
from profzoo.machine import external_programs
from profzoo.referee import envelope
from profzoo.statistics import sequential, speedup

CONFIGURATION = ".profzoo.yaml"
# First line of the comment, by which the next run finds it.
MARK = "<!-- profzoo gate -->"
# Outcomes that decide nothing; one that is not here is decided.
UNDECIDED, NOT_JUDGED = speedup.UNDECIDED, "not judged"
OPEN = (UNDECIDED, NOT_JUDGED)
# Outcomes that a gate can be told to fail on, and those that it fails on by default.
FAILING = ("slower", "different", "invalid")
KEYS, NEEDED = ("module", "phase", "shape", "precision", "fail_on", "command"), ("module",)
# Scripts start anew in each round, which takes as many times longer.
OF_COMMANDS = 5
PHASES, PRECISIONS = ("train", "inference"), ("fp32", "tf32", "bf16", "fp16")
# Longest text of a program in the comment, and most programs; GitHub takes 65,536 characters. Digits of a commit.
LONGEST, MOST, LARGEST, SHORT = 120, 50, 60_000, 9
MARKS = re.compile("[^0-9A-Za-z \x80-\U0010ffff]")
# Levels of tables/compare_parts.csv that say what changed, and the least share of the step.
LEVELS, LEAST_SHARE, MOST_PARTS = ("kernel", "layer", "part"), 0.01, 2
# Units of claims: how the times of a step compare, and how long it takes.
RATIO, SECONDS = "candidate's time / reference's time", "s"
# Said of operators that are the same on both sides.
SAME_WORK = "both sides call the same operators"
DASH = "–"


@dataclass(frozen=True)
class Entry:
    """A program that the gate judges: its file or a script's command, how it runs, and on which outcomes it fails."""

    module: str = ""
    phase: str = "inference"
    shape: Mapping[str, float] = field(default_factory=dict)
    precision: str = "fp32"
    fail_on: Sequence[str] = FAILING
    command: str = ""

    @property
    def name(self) -> str:
        """What the comment calls it."""
        if self.command:
            return self.command
        sizes = [f"{key}={value}" for key, value in self.shape.items()]
        return " ".join((self.module, self.phase, *sizes, *([] if self.precision == "fp32" else [self.precision])))


@dataclass(frozen=True)
class Judged:
    """What is known of a program.

    ratio: time of the head over the time of the base, with the ends of its interval; before_s, after_s: the times of a
    step. NaN stands for what is unknown. parts: what changed, the largest difference first.
    """

    name: str
    outcome: str
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    before_s: float = math.nan
    after_s: float = math.nan
    numerics: str = ""
    why: str = ""
    fails: bool = False
    parts: Sequence[str] = ()


@dataclass(frozen=True)
class Change:
    """A pull request: commits of base and head, and whether the head has another configuration than the base."""

    base: str
    head: str
    reconfigured: bool = False


# Reading.


def read_configuration(commit: str, repository: Path) -> str | None:
    """Return the text of the configuration of a commit; None without one."""
    found = external_programs.ask_git(repository, "show", f"{commit}:{CONFIGURATION}")
    return None if found.returncode else found.stdout


def read_commit_time(commit: str, repository: Path) -> str:
    """Return when a commit was made, in UTC."""
    seconds = int(
        external_programs.ask_git(repository, "show", "--no-patch", "--format=%ct", commit).stdout.split()[-1]
    )
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def parse_configuration(text: str, where: str) -> list[Entry]:
    """Return the programs that a configuration names.

    where: what messages call it.

    Raises:
        ConfigError: the text is no such configuration.
    """
    strict_yaml.check_yaml(text, where)
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is no YAML: {first_error_line(error)}") from error
    if not isinstance(content, Mapping) or not isinstance(content.get("judge"), list) or not content["judge"]:
        raise ConfigError(f"{where}: `judge` is not a list of programs: write `judge: [{{module: models/mine.py}}]`")
    _check_keys(where, content, ("judge", "fail_on"), ())
    default = _read_outcomes(where, content.get("fail_on", list(FAILING)))
    if len(content["judge"]) > MOST:
        raise ConfigError(f"{where}: `judge` has {len(content['judge'])} programs: {MOST} fit into a comment")
    entries = [_read_entry(f"{where}: program {at}", one, default) for at, one in enumerate(content["judge"], 1)]
    names = [entry.name for entry in entries]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(f"{where}: {twice!r} is named twice: leave one of them out")
    return entries


def _read_entry(where: str, one: Any, default: Sequence[str]) -> Entry:
    if not isinstance(one, Mapping):
        raise ConfigError(f"{where} is no mapping: write `module: models/mine.py`")
    _check_keys(where, one, KEYS, () if "command" in one else NEEDED)
    if "command" in one:
        return _read_command(where, one, default)
    module, shape = one.get("module", ""), one.get("shape", {})
    phase, precision = one.get("phase", "inference"), one.get("precision", "fp32")
    path = Path(module) if isinstance(module, str) else None
    if path is None or path.is_absolute() or ".." in path.parts or path.suffix != ".py":
        raise ConfigError(f"{where}: module {module!r} is no Python file of the repository: write models/mine.py")
    for key, value, known in (("phase", phase, PHASES), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise ConfigError(f"{where}: {key} {value!r}: {suggest_nearest(value, known)}")
    if not isinstance(shape, Mapping) or not all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in shape.values()
    ):
        raise ConfigError(f"{where}: shape is no mapping of names to numbers: write {{batch: 8}}")
    outcomes = _read_outcomes(where, one["fail_on"]) if "fail_on" in one else default
    return Entry(module, phase, dict(shape), precision, outcomes)


def _read_command(where: str, one: Mapping[Any, Any], default: Sequence[str]) -> Entry:
    if others := [key for key in one if key not in ("command", "fail_on")]:
        raise ConfigError(f"{where}: {others[0]} is that of a model's file, and command runs a script: leave one out")
    if not isinstance(one["command"], str) or not one["command"].strip():
        raise ConfigError(f"{where}: command {one['command']!r} is no command: write 'python train.py'")
    outcomes = _read_outcomes(where, one["fail_on"]) if "fail_on" in one else default
    return Entry(precision="", fail_on=outcomes, command=one["command"])


def _check_keys(where: str, given: Mapping[Any, Any], known: Sequence[str], needed: Sequence[str]) -> None:
    if unknown := [key for key in given if key not in known]:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; {suggest_nearest(unknown[0], known)}")
    if missing := [key for key in needed if key not in given]:
        raise ConfigError(f"{where}: {missing[0]!r} is missing")


def _read_outcomes(where: str, given: Any) -> Sequence[str]:
    outcomes = [given] if isinstance(given, str) else given
    if not isinstance(outcomes, list):
        raise ConfigError(f"{where}: fail_on is no list: write [{', '.join(FAILING)}]")
    if unknown := [one for one in outcomes if one not in FAILING]:
        raise ConfigError(f"{where}: fail_on has {unknown[0]!r}; {suggest_nearest(unknown[0], FAILING)}")
    return tuple(outcomes)


# Judging.


def decide(judged: Judged, fail_on: Sequence[str]) -> bool:
    """Whether the gate fails on a judgement; what is undecided never does.

    >>> [decide(Judged("a", outcome), FAILING) for outcome in ("slower", "undecided", "faster", "not judged")]
    [True, False, False, False]
    """
    return judged.outcome not in OPEN and judged.outcome in fail_on


def judge_all(entries: Sequence[Entry], change: Change, budget_s: float) -> list[Judged]:
    """Judge the programs between both commits of the repository in the current folder.

    The error of all judgements together is that of one: a change that does nothing fails with 5 % at most.
    """
    # Imported here, because a gate on stored judgements needs no torch.
    judge = importlib.import_module("profzoo.referee.judge")
    found = []
    # The configuration names files relative to the top of the repository.
    top = external_programs.ask_git(Path.cwd(), "rev-parse", "--show-toplevel").stdout.strip()
    with chdir(top or Path.cwd()):
        for entry in entries:
            options = judge.Options(
                module=entry.module, phase=entry.phase, shape=entry.shape, precision=entry.precision,
                command=entry.command, budget_s=budget_s * (OF_COMMANDS if entry.command else 1),
            )  # fmt: skip
            sides = f"git:{change.base}", f"git:{change.head}"
            try:
                judgement = judge.judge(*sides, options, level=sequential.ERROR / len(entries))
            except ConfigError as error:
                found.append(Judged(entry.name, NOT_JUDGED, why=str(error)))
            else:
                found.append(from_judgement(judgement, entry))
    return found


def from_judgement(judgement: Any, entry: Entry) -> Judged:
    """Return what the comment says of a judgement; judgement: of `profzoo.referee.judge`."""
    differences = [
        f"{name}: {found:.1g} of {allowed:.1g} allowed" for name, (found, allowed) in judgement.numerics.items()
    ]
    differs = str(judgement.work.get("differs", SAME_WORK))
    judged = Judged(
        entry.name,
        judgement.outcome,
        ratio=_or_nan(judgement.ratio),
        low=_or_nan(judgement.low),
        high=_or_nan(judgement.high),
        before_s=_or_nan(judgement.reference_s),
        after_s=_or_nan(judgement.candidate_s),
        numerics="; ".join(differences),
        why=judgement.why,
        parts=[] if differs == SAME_WORK else [differs],
    )
    return replace(judged, fails=decide(judged, entry.fail_on))


def list_parts(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """Return in words what changed in a program, by rows of tables/compare_parts.csv; name: model and phase."""
    own = [row for row in rows if f"{row['model']} {row['phase']}" == name and row["level"] in LEVELS]
    own = [row for row in own if abs(row["delta_share"]) >= LEAST_SHARE or row["change"]]
    found: list[str] = []
    for level in LEVELS:
        of_level = sorted((row for row in own if row["level"] == level), key=lambda row: -abs(row["delta_share"]))
        for row in of_level[:MOST_PARTS]:
            changed = f", {row['change']}" if row["change"] else ""
            found.append(f"{level} {row['name']}: {row['delta_share']:+.1%} of the step{changed}")
    return found[: MOST_PARTS + 1]


# The comment.


def escape(text: str, longest: int = LONGEST) -> str:
    r"""Return a text as code of a Markdown table, which shows it as it is and takes nothing of it for a mark.

    Marks are entities, which Markdown never reads as structure; in code, GitHub and GitLab make no mentions or links.

    >>> escape("a|<b>\n")
    '<code>a&#124;&#60;b&#62;&#92;n</code>'
    """
    return f"<code>{MARKS.sub(_as_entity, envelope.quote(text, longest))}</code>"


def _as_entity(mark: re.Match[str]) -> str:
    return f"&#{ord(mark[0])};"


def count_outcomes(judged: Sequence[Judged]) -> tuple[int, int]:
    """Return how many programs fail, and of how many nothing was decided."""
    return sum(one.fails for one in judged), sum(one.outcome in OPEN for one in judged)


def describe_result(judged: Sequence[Judged]) -> str:
    """Say in one line what came of it.

    >>> describe_result([Judged("a", "slower", fails=True), Judged("b", "undecided")])
    'failed: 1 of 2 programs; 1 is undecided, which does not fail'
    """
    failed, undecided = count_outcomes(judged)
    programs = "1 program" if len(judged) == 1 else f"{len(judged)} programs"
    told = f"failed: {failed} of {programs}" if failed else f"passed: {programs}" if judged else "nothing was judged"
    return (
        f"{told}; {undecided} {'is' if undecided == 1 else 'are'} undecided, which does not fail" if undecided else told
    )


def write_comment(judged: Sequence[Judged], change: Change, notes: Sequence[str] = ()) -> str:
    """Return the comment in Markdown: a table with a row for each program, what fails first."""
    order = {one: place for place, one in enumerate((*FAILING[::-1], "faster", *OPEN, "equivalent"))}
    rows = sorted(judged, key=lambda one: (not one.fails, order.get(one.outcome, len(order)), one.name))
    for shown in (rows, [replace(one, parts=(), why=one.why[:LONGEST]) for one in rows]):
        text = _write_rows(shown, judged, change, notes)
        if len(text) <= LARGEST:
            return text
    # Each name may take six times its length.
    while len(text) > LARGEST:
        shown = shown[: len(shown) * 3 // 4]
        text = _write_rows(
            shown, judged, change, (*notes, f"{len(rows) - len(shown)} more programs have no room here.")
        )
    return text


def _write_rows(rows: Sequence[Judged], judged: Sequence[Judged], change: Change, notes: Sequence[str]) -> str:
    commits = f" ({change.base[:SHORT]} to {change.head[:SHORT]})" if change.head else ""
    lines = [MARK, f"**profzoo {describe_result(judged)}**{commits}", ""]
    if rows:
        names = ("", "program", "before", "after", "time after / before", "numerics", "what changed")
        lines += [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        lines += [*(f"| {' | '.join(_describe(one))} |" for one in rows), ""]
    if change.reconfigured:
        told = f"The change edits {CONFIGURATION}. That of the base was used; the new one counts once it is merged."
        notes = (told, *notes)
    lines += [f"- {note}" for note in notes]
    told_why = [one for one in rows if one.why and (one.fails or one.outcome in OPEN)]
    lines += [f"- {escape(one.name)}: {escape(one.why, 2 * LONGEST)}" for one in told_why]
    return "\n".join(lines).rstrip() + "\n"


def _describe(one: Judged) -> tuple[str, ...]:
    """Return the fields of a program's row; only texts of profzoo's own stand outside of code."""
    outcome = one.outcome if re.fullmatch(r"[a-z ]+", one.outcome) else escape(one.outcome)
    times = [DASH if math.isnan(seconds) else format_ns(seconds * 1e9) for seconds in (one.before_s, one.after_s)]
    ratio = DASH if math.isnan(one.ratio) else fixed(one.ratio, 1, 2)
    if not math.isnan(one.low):
        ratio += f" ({fixed(one.low, 1, 2)} to {fixed(one.high, 1, 2)})"
    parts = "<br>".join(escape(part) for part in one.parts) or DASH
    numerics = escape(one.numerics) if one.numerics else DASH
    return f"**{outcome}**" if one.fails else outcome, escape(one.name), *times, ratio, numerics, parts


# Answers for programs.


def to_envelope(question: Sequence[str], judged: Sequence[Judged], notes: Sequence[str]) -> envelope.Envelope:
    """Return the judgements as an answer, with the time of the head's step as a claim of its own."""
    claims: list[envelope.Claim] = []
    for one in judged:
        if one.outcome == NOT_JUDGED:
            continue
        known = not math.isnan(one.ratio)
        claims.append(
            envelope.Claim(
                id=f"gate.{one.name}", kind="judgement", subject=one.name, outcome=one.outcome, says=one.why,
                value=_or_none(one.ratio), low=_or_none(one.low), high=_or_none(one.high),
                unit=RATIO if known else "", confidence=0.95 if not math.isnan(one.low) else None,
            )
        )  # fmt: skip
        # The time of a program that computes something else is no measurement of the main branch.
        if not math.isnan(one.after_s) and one.outcome not in ("different", "invalid"):
            claims.append(
                envelope.Claim(
                    id=f"gate.{one.name}.step", kind="judgement", subject=one.name, outcome="measured",
                    says="the time of a step of the head", value=one.after_s, unit=SECONDS,
                )
            )  # fmt: skip
    abstained = [envelope.Abstention(one.name, one.why or "unknown") for one in judged if one.outcome == NOT_JUDGED]
    return envelope.Envelope(question, claims, abstained, notes=tuple(notes))


def _or_none(number: float) -> float | None:
    return None if math.isnan(number) else number


def read_stored(document: Any, where: str) -> list[Judged]:
    """Return the judgements of an envelope that was stored; the times of steps are those of claims in seconds.

    Raises:
        ConfigError: it is no envelope, or the answer is an error.
    """
    import jsonschema

    try:
        envelope.check(document)
    except jsonschema.ValidationError as error:
        raise ConfigError(
            f"{where} is no answer of profzoo: {envelope.quote(error.message)} at {error.json_path}"
        ) from None
    if document["error"]:
        raise ConfigError(f"{where} holds an error: {envelope.quote(document['error']['what'])}")
    own = [claim for claim in document["claims"] if claim["kind"] == "judgement"]
    steps = {claim["subject"]: claim["value"] for claim in own if claim["unit"] == SECONDS}
    judged = []
    for claim in own:
        if claim["unit"] == SECONDS:
            continue
        # Numbers in other units are not compared.
        low, ratio, high = (
            _or_nan(claim[name] if claim["unit"] == RATIO else None) for name in ("low", "value", "high")
        )
        after_s = _or_nan(steps.get(claim["subject"]))
        judged.append(
            Judged(claim["subject"], claim["outcome"], ratio, low, high, after_s / ratio, after_s, why=claim["says"])
        )
    # The judge abstains from what it leaves undecided.
    outcome = UNDECIDED if document["question"][:1] == ["judge"] else NOT_JUDGED
    return judged + [Judged(one["subject"], outcome, why=one["why"]) for one in document["abstained"]]


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else float(number)
