"""Runs a script once, says what a step of it is, and prints the configuration that profiles it."""

import argparse
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from profzoo import run
from profzoo.cell import registry, rerun_commands, schema, sidecar_files
from profzoo.errors import CollectError, ConfigError
from profzoo.script_harness import launcher
from profzoo.tools import unavailable_tools
from profzoo.tools.ncu import TOOL as NCU

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

# Steps that are timed, for a first look.
WINDOW = 10
# Section set of ncu for a first look.
FIRST_SET = "roofline"


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(words)
    command = shlex.join(options.command[1:] if options.command[:1] == ["--"] else options.command)
    if not command:
        parser.error("give the command of a script, such as -- python train.py")
    name = options.name or propose_name(command)
    given = {"command": command, "phase": options.phase, "step": options.step, "window": str(options.window)}
    given["warmup"] = str(options.warmup)
    try:
        cell = run.resolve_words(
            name, options.phase, schema.BASELINE, [f"{key}={value}" for key, value in given.items()]
        )
        with tempfile.TemporaryDirectory() as folder:
            files = dict.fromkeys(("memory", "trace", "operators")) | {"steps": Path(folder) / "steps.csv"}
            facts = cast("Sidecar", launcher.run_script(cell, argparse.Namespace(at_least_s=0.0, **files)))
    except (CollectError, ConfigError) as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 2
    print("\n".join(["", *describe_run(facts), "", *configuration_lines(name, command, options, facts)]))
    return 0


def propose_name(command: str) -> str:
    """Propose a name for a script: that of its file, with what a name may not hold replaced.

    >>> propose_name("python examples/train-gpt.2.py --fast"), propose_name("./run")
    ('train-gpt_2', 'script')
    """
    found = [word for word in shlex.split(command) if word.endswith(".py")]
    name = re.sub(r"[^A-Za-z0-9_-]", "_", Path(found[0]).stem) if found else "script"
    usable = schema.is_name(name, "model") and not registry.is_taken(name)
    return name if usable else f"my_{name}"


def describe_run(facts: "Sidecar") -> list[str]:
    """Describe in lines what a step of the script is, how regular its steps are, and how long one takes."""
    script = facts["script"]
    step_s = facts["step_ns"] / 1e9
    counts = sidecar_files.describe_counts(script["per_step"])
    share = round(script["regular_share"] * 100)
    lines = [
        f"step      {script['step']}: {counts}; {share} % of the steps are like this",
        f"time      {step_s * 1e3:.2f} ms per step, {_describe_samples(facts, step_s)}, on {facts['device']}",
        f"networks  {', '.join(script['networks'])}: {facts['parameters']:,} parameters, "
        f"{script['observed']['precision']}",
    ]
    if script["skipped_updates"]:
        lines.append(f"skipped   {script['skipped_updates']} optimizer steps, by the gradient scaler")
    return lines


def _describe_samples(facts: "Sidecar", step_s: float) -> str:
    if facts["items"] is None:
        return "samples of a step not known"
    return f"{facts['items'] / facts['steps'] / step_s:,.0f} samples/s, batch {facts['batch']}"


def configuration_lines(name: str, command: str, options: argparse.Namespace, facts: "Sidecar") -> list[str]:
    """Return the lines of a configuration file that profile the script, and what to type then."""
    trains = bool({"optimizer steps", "backward passes"} & facts["script"]["per_step"].keys())
    phase = options.phase if trains else "inference"
    other = {"phase": phase} if phase != "train" else {}
    other |= {"step": options.step} if options.step != "auto" else {}
    other |= {"warmup": options.warmup} if options.warmup != _default_warmup() else {}
    # A text in JSON is one in YAML.
    written = json.dumps(command, ensure_ascii=False)
    settings = ", ".join([f"command: {written}", *(f"{key}: {value}" for key, value in other.items())])
    return [
        "Put these lines into config/config.yaml, or into a file for --configfile:",
        f"  models: [{name}]",
        "  settings:",
        f"    {name}: {{{settings}}}",
        "",
        "Then type one of:",
        *(f"  {line}" for line in _next_commands(name, phase, facts)),
    ]


def _next_commands(name: str, phase: str, facts: "Sidecar") -> list[str]:
    """Return commands that profile the script on this machine: one tool's table, and the report."""
    chosen = unavailable_tools.choose_tools(on_cpu=facts["device_type"] == "cpu")
    named = rerun_commands.name_tools(chosen)
    table = f"{chosen[0]}.{FIRST_SET}.csv" if chosen[0] == NCU else f"{chosen[0]}.csv"
    return [f"snakemake results/{name}/{phase}.{table}", f"snakemake report{named and f' --config {named}'}"]


def _default_warmup() -> int:
    found: int = schema.cell_properties()["warmup"]["default"]
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m profzoo run", description=__doc__, allow_abbrev=False)
    parser.add_argument("--name", help="name of the script in results/; that of its file unless given")
    parser.add_argument("--phase", choices=("train", "inference"), default="train")
    parser.add_argument("--step", default="auto", help="auto, optimizer, module:NAME, range:NAME or dataloader")
    parser.add_argument("--warmup", type=int, default=_default_warmup(), help="steps before the window")
    parser.add_argument("--window", type=int, default=WINDOW, help="steps that are timed")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command, as you type it")
    return parser
