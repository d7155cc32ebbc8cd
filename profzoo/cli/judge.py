"""Judges a candidate against a reference, two states of one program: is it faster, and does it compute the same?"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profzoo.errors import ConfigError, DataError, suggest_nearest
from profzoo.machine import job_limits, processes
from profzoo.referee import envelope
from profzoo.referee.judge import DEFAULTS, OUTCOMES, PRECISIONS, Judgement, Options, judge, judge_in_session
from profzoo.referee.states import COMMAND
from profzoo.statistics import sequential

DESCRIPTION = f"""{__doc__}

A and B are each a folder, git:COMMIT of the current repository, or patch:FILE, which is applied to A. The program is a
model's file with build(shape) and sample(shape, generator). Its sizes, its inputs and its loss are those of A. With
--command it is a script, which runs unchanged in both states; command:WORDS is the current folder with a command of its
own. Both states run from private copies; nothing is written to yours.
"""
ENDS = f"""exit codes: 0 it is decided; {envelope.EXIT_CODES[envelope.ABSTAINED]} it is undecided;
{envelope.EXIT_FAILED} an outcome that --fail-on names; 1 there is no such state, or the reference cannot be run;
{envelope.EXIT_USAGE} a command line that cannot be used"""
BUDGET, BUDGET_OF_SCRIPTS = "60s", "5m"


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    given = _parser().parse_args(words)
    question = ["judge", given.reference, given.candidate]
    try:
        options = _options(given)
        failing = _parse_outcomes(given.fail_on)
    except ConfigError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return envelope.EXIT_USAGE
    try:
        # Copies are removed, and processes ended, when this one is told to end.
        with processes.raise_on_signals():
            found, answer = _judge(given, options)
    except (ConfigError, DataError, OSError) as error:
        if given.json:
            print(envelope.format_json(envelope.fail(question, error)))
        else:
            print(f"profzoo: {error}", file=sys.stderr)
        return envelope.EXIT_CODES[envelope.ERROR]
    lines = describe(found)
    answer = replace(answer, question=question, notes=[*answer.notes, *lines[1:]])
    print(envelope.format_json(answer) if given.json else "\n".join([lines[0], *answer.notes]))
    return envelope.EXIT_FAILED if found.outcome in failing else answer.exit_code


def _judge(given: argparse.Namespace, options: Options) -> tuple[Judgement, envelope.Envelope]:
    if given.session:
        return judge_in_session(Path(given.session), given.name, given.reference, given.candidate, options)
    found = judge(given.reference, given.candidate, options, given.level or sequential.ERROR)
    return found, found.to_answer(())


def describe(found: Judgement) -> list[str]:
    """Describe a judgement in lines, the outcome first."""
    lines = [f"{found.outcome}: {envelope.quote(found.why, 1000)}"]
    if found.reference_s is not None and found.candidate_s is not None:
        times = f"{_milliseconds(found.reference_s)} -> {_milliseconds(found.candidate_s)}"
        lines.append(f"a step: {times} by the referee's clock")
    if found.reference_device_s is not None and found.candidate_device_s is not None:
        own = f"{_milliseconds(found.reference_device_s)} -> {_milliseconds(found.candidate_device_s)}"
        lines.append(f"a step: {own} by the device's clock")
    lines += [
        f"{quantity} differ by {difference:.2g}, and {allowed:.2g} is allowed"
        for quantity, (difference, allowed) in found.numerics.items()
    ]
    if found.work:
        lines.append(f"work of a step: {envelope.quote(found.work['differs'], 1000)}")
    return [*lines, *(envelope.quote(note) for note in found.notes)]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def _options(given: argparse.Namespace) -> Options:
    """Return the options of a command line.

    Raises:
        ConfigError: one of them cannot be used.
    """
    if given.session and given.level is not None:
        raise ConfigError("--level: a session gives each test its level: leave it out, or --session")
    if given.name and not given.session:
        raise ConfigError("--name: a name is that of a test of a session: give --session FILE too")
    if given.level is not None and not 0 < given.level < 1:
        raise ConfigError(f"--level {given.level:g}: give a probability between 0 and 1, such as {sequential.ERROR:g}")
    if not 0 < given.margin < 1:
        raise ConfigError(f"--margin {given.margin:g}: give a share between 0 and 1, such as {DEFAULTS.margin:g}")
    scripts = bool(given.command) or given.reference.startswith(COMMAND)
    for name in ("module", "shape", "workload", "phase") if scripts else ("step",):
        if getattr(given, name):
            what = "that of a model's file" if scripts else "that of a script, which --command runs"
            raise ConfigError(f"--{name} is {what}: leave it out")
    return Options(
        module=given.module,
        command=given.command,
        step=given.step or DEFAULTS.step,
        phase=given.phase or DEFAULTS.phase,
        shape=parse_shape(given.shape),
        workload=given.workload,
        device=given.device,
        precision=given.precision or ("" if scripts else DEFAULTS.precision),
        threads=given.threads,
        budget_s=job_limits.parse_seconds(given.budget or (BUDGET_OF_SCRIPTS if scripts else BUDGET), "--budget"),
        margin=given.margin,
    )


def parse_shape(text: str) -> dict[str, Any]:
    """Return the sizes that a text gives.

    Raises:
        ConfigError: it has another form.

    >>> parse_shape("batch=8,size=32")
    {'batch': 8, 'size': 32}
    """
    found: dict[str, Any] = {}
    for word in filter(None, text.split(",")):
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"--shape {text!r}: {word!r} gives no size: write such as batch=8,size=32")
        try:
            found[name] = int(value)
        except ValueError:
            found[name] = value
    return found


def _parse_outcomes(text: str) -> set[str]:
    """Return the outcomes that a text names.

    Raises:
        ConfigError: there is no such outcome.
    """
    named = [word.strip() for word in text.split(",") if word.strip()]
    for name in named:
        if name not in OUTCOMES:
            raise ConfigError(f"--fail-on: there is no outcome {name!r}; {suggest_nearest(name, OUTCOMES)}")
    return set(named)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="profzoo judge", description=DESCRIPTION, epilog=ENDS, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("reference", metavar="A", help="the reference, such as git:HEAD")
    parser.add_argument("candidate", metavar="B", help="the candidate, such as a folder")
    parser.add_argument("--module", default="", metavar="PATH", help="the program's file, relative to the folder")
    parser.add_argument("--shape", default="", metavar="SIZES", help="sizes of its own: batch=8,size=32")
    parser.add_argument("--workload", default="", metavar="NAME", help="workload of A; trimmed, or the first one")
    parser.add_argument("--phase", choices=("inference", "train"), help=f"of a model's file; {DEFAULTS.phase}")
    parser.add_argument("--command", default="", metavar="WORDS", help="runs a script: 'python train.py'")
    parser.add_argument("--step", default="", metavar="EVENT", help="what ends a step of a script; found by itself")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default=DEFAULTS.device)
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="of both sides, as declared; fp32, or that of A's script"
    )
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads of torch on a CPU; its own choice")
    budget = f"time in all; {BUDGET}, and {BUDGET_OF_SCRIPTS} for scripts"
    parser.add_argument("--budget", metavar="TIME", help=budget)
    parser.add_argument("--margin", type=float, default=DEFAULTS.margin, help="difference that counts as equivalent")
    parser.add_argument("--level", type=float, help=f"error of calling equal times different; {sequential.ERROR:g}")
    parser.add_argument("--session", metavar="FILE", help="judge as the next test of this session, at its level")
    parser.add_argument("--name", default="", help="of the test in the session; the states unless given")
    parser.add_argument("--json", action="store_true", help="print an envelope for programs")
    fails = f"end with {envelope.EXIT_FAILED} for these outcomes: {', '.join(OUTCOMES)}"
    parser.add_argument("--fail-on", default="", metavar="OUTCOMES", help=fails)
    return parser
