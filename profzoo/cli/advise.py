"""Says what to change in a script: looks at a step of it, writes a configuration, and runs the workflow in a folder."""

import argparse
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from profzoo import formatting, run, tools
from profzoo.cell import registry, rerun_commands, schema, settings, sidecar_files
from profzoo.cli import new_folder
from profzoo.errors import CollectError, ConfigError
from profzoo.io import strict_yaml
from profzoo.machine import job_limits
from profzoo.records import atomic_writes
from profzoo.script_harness import launcher, recorded_files
from profzoo.script_harness.recorded_files import FOLDER
from profzoo.terminal import run_plan
from profzoo.tools import unavailable_tools
from profzoo.tools.ncu import TOOL as NCU
from profzoo.tools.ncu import doctor as ncu_doctor

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

CONFIGURED, PRINTED = FOLDER / "config" / "config.yaml", FOLDER / "first-look.log"
PROFILE = FOLDER / "profiles" / "default" / "config.yaml"
BUDGET = "2m"
# Looks at a script that ends early: each with fewer steps than the one before saw.
LOOKS = 4
# Variants that can be applied to a script from outside, which are tried after its plans.
ON_CPU = ("workers", "bf16", "compile", "channels_last", "fused")
ON_GPU = ("bf16", "tf32", "workers", "fused", "compile", "reduce-overhead", "channels_last", "cudnn_benchmark")
PLANS = "results/tables/plans.csv"
# A program that sets variables for the one that follows it.
ENV = "env"
# Seed of a script that sets none, so that a try can say whether it computes the same; 0 would leave it without one.
SEED = 1
# Seconds that tables, figures and the page take, for the first line.
REST_S = 20.0
ENDED, ENDED_CODE = "profzoo: ended by Ctrl-C", 130
# Starts Snakemake, which takes a second to import, and ends in one line then, too.
SNAKEMAKE = [
    sys.executable,
    "-c",
    "import runpy, sys\n"
    "try:\n    runpy.run_module('snakemake', run_name='__main__', alter_sys=True)\n"
    f"except KeyboardInterrupt:\n    print({ENDED!r}, file=sys.stderr)\n    sys.exit({ENDED_CODE})",
]


def main(words: Sequence[str]) -> int:
    """Run the command line; the workflow replaces this process, else returns the exit code."""
    parser = _parser()
    options = parser.parse_args(words)
    typed = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not typed:
        parser.error("give the command of a script, as in `profzoo advise -- python train.py`")
    try:
        _check(options, typed)
        new_folder.update_folder(FOLDER)
        lines = configure(options, typed)
        if options.show_config:
            print("\n".join(lines))
            return 0
        command = [*SNAKEMAKE, *_targets(options), *_profile_options()]
    except (CollectError, ConfigError) as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"profzoo: cannot write {error.filename or FOLDER}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(ENDED, file=sys.stderr)
        return ENDED_CODE
    # Ctrl-C and the size of the terminal then reach Snakemake itself.
    sys.stdout.flush()
    os.chdir(FOLDER)
    os.execve(command[0], command, _own_variables(os.environ, words, typed))


def _targets(options: argparse.Namespace) -> list[str]:
    """Return what Snakemake is to make: the report, or trials within a time."""
    if not options.tried:
        return ["report"]
    panel = ", ".join(ON_CPU if unavailable_tools.lacks_gpu() else ON_GPU)
    return ["trials", "--config", f"trials={{budget: {options.tried}, panel: [{panel}], plans: {PLANS}}}"]


def _own_variables(variables: Mapping[str, str], words: Sequence[str], command: Sequence[str]) -> dict[str, str]:
    """Return the environment of Snakemake, in which the folder's copy of the package is found before any other.

    words: the command line, from which the advice makes others; command: the script's, at its end.
    """
    own = words[: len(words) - len(command)]
    at = own.index(rerun_commands.TRY) if rerun_commands.TRY in own else len(words)
    typed = shlex.join([*words[:at], *words[at + 2 :]])
    own_width = {"COLUMNS": str(_width())} if sys.stderr.isatty() else {}
    others = new_folder.other_packages(variables)
    return {**variables, **own_width, "PYTHONPATH": others, rerun_commands.ADVISED: typed}


def _check(options: argparse.Namespace, typed: Sequence[str]) -> None:
    """Raise ConfigError for what can be known to be wrong before anything is written."""
    for name, time in (("--budget", options.budget), (rerun_commands.TRY, options.tried)):
        if time is not None:
            job_limits.parse_seconds(time, name)
    for name, least in (("warmup", 1), ("window", 1)):
        if getattr(options, name) < least:
            raise ConfigError(f"--{name} {getattr(options, name)}: give a number of steps, at least {least}")
    if options.name and not schema.is_name(options.name, "model"):
        raise ConfigError(f"--name {options.name!r} is not a name: {schema.describe_form('model')}")
    schema.check_value(options.step, schema.script_properties()["step"], "--step")
    if missing := registry.find_missing_script(shlex.join(typed)):
        raise ConfigError(f"there is no {missing} in {Path.cwd()}: go to the script's folder, or correct the name")
    if not shutil.which(typed[0]):
        how = f"write `python {shlex.join(typed)}`" if typed[0].endswith(".py") else "give the command as you type it"
        raise ConfigError(f"{typed[0]} is not on PATH, nor a file that can be run: {how}")


def configure(options: argparse.Namespace, typed: Sequence[str]) -> list[str]:
    """Return the lines of the configuration, which are written where the command is another than before.

    Raises:
        CollectError, ConfigError: the script cannot be measured.
        OSError: a file cannot be written.
    """
    given = {key: value for key, value in vars(options).items() if key not in ("show_config", "tried", "command")}
    asked = f"# By `profzoo advise` for {json.dumps([*typed, given])}"
    known = CONFIGURED.read_text().splitlines() if CONFIGURED.exists() else []
    if known[:1] != [asked]:
        known = [asked, *_look(options, typed)]
        CONFIGURED.parent.mkdir(exist_ok=True)
        atomic_writes.write_synced(CONFIGURED, "\n".join(known) + "\n")
    here = f"    folder: {json.dumps(str(Path.cwd()))}" if options.show_config else ""
    return [here if here and line.startswith("    folder: ") else line for line in known[1:]]


def _look(options: argparse.Namespace, typed: Sequence[str]) -> list[str]:
    """Run the script for its first steps, say what they are, and return the lines that configure its profiling."""
    command = shlex.join(find_programs(typed, os.environ))
    name = options.name or propose_name(command)
    chosen, unable = _choose_tools()
    _say([("plan", plan_runs(shlex.join(typed), chosen, options))])
    _say([("without", f"{one}: {why}") for one, why in unable])
    with ThreadPoolExecutor() as beside:
        counters = beside.submit(ncu_doctor.check_counters) if NCU in chosen else None
        facts, warmup, window = _run_first_steps(name, command, options)
    described = describe_run(facts)
    _say(described)
    if facts["device_type"] == "cpu":
        chosen = unavailable_tools.choose_tools(on_cpu=True)
    elif counters and (reason := counters.result().advice):
        chosen.remove(NCU)
        _say([("without", f"{NCU}: {reason}")])
    own = {"command": command, "folder": "..", "phase": options.phase or recorded_files.find_phase(facts)}
    own |= {"step": options.step} if options.step != "auto" else {}
    own |= {"warmup": warmup} if warmup != _default_warmup() else {}
    own |= {"seed": SEED}
    config: dict[str, Any] = {"models": [name], "tool": chosen}
    # With a GPU, the script decides.
    config |= {"device": "cpu"} if unavailable_tools.lacks_gpu() else {}
    config |= {tool: {"window": steps} for tool, steps in _windows(own, chosen, warmup, window).items()}
    config |= {NCU: {**config.get(NCU, {}), "budget": options.budget}} if NCU in chosen else {}
    return [
        *(f"# {name:<8}{what}" for name, what in described),
        *(f"{key}: {_word(value)}" for key, value in config.items()),
        "settings:",
        f"  {name}:",
        *(f"    {key}: {_word(value)}" for key, value in own.items()),
    ]


def plan_runs(typed: str, chosen: Sequence[str], options: argparse.Namespace) -> str:
    """Say how often a script is run, with what, for how long about, and where everything goes."""
    on_cpu = unavailable_tools.lacks_gpu()
    costs = run_plan.shipped_durations()["cpu" if on_cpu else "gpu"]
    asked = job_limits.parse_seconds(options.budget, "--budget")
    # A budget is for counting alone.
    took = [costs[tool] + (asked if tool == NCU else 0.0) for tool in (tools.BASELINE, tools.BASELINE, *chosen)]
    named = [f"{tool} (at most {options.budget})" if tool == NCU else tool for tool in (tools.BASELINE, *chosen)]
    time = formatting.format_estimate(sum(took) + REST_S)
    return (
        f"{len(took)} runs of {typed}, about {options.warmup + options.window} steps each: a first look, then "
        f"{formatting.list_names(named)}{' (no GPU here)' if on_cpu else ''}; about {time}. All files go to {FOLDER}/"
    )


def _say(rows: Sequence[tuple[str, str]]) -> None:
    """Print rows as the end of a run has them."""
    for line in formatting.format_rows(rows, _width()):
        print(line, file=sys.stderr, flush=True)


def _width() -> int:
    return os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else formatting.ENDLESS


def _word(value: Any) -> str:
    """Return a value of a YAML file; one in JSON is one in YAML."""
    return json.dumps(value, ensure_ascii=False)


def _run_first_steps(name: str, command: str, options: argparse.Namespace) -> tuple["Sidecar", int, int]:
    """Run a script until its window ends; returns its facts, and steps of warm-up and window that it has.

    Raises:
        CollectError: it ends before, whatever the window; the message ends with what it printed last.
    """
    warmup, window = options.warmup, options.window
    for left in reversed(range(LOOKS)):
        words = {"command": command, "phase": options.phase or "train", "step": options.step}
        words |= {"warmup": str(warmup), "window": str(window), "seed": str(SEED)} | _on_cpu()
        settled = [f"{key}={value}" for key, value in words.items()]
        cell = run.resolve_words(name, words["phase"], schema.BASELINE, settled)
        try:
            with PRINTED.open("wb") as printed:
                # With the step more that the timed run takes after its window.
                files = {name: PRINTED.with_suffix(f".{name}.csv") for name in ("steps", "memory")}
                asked = argparse.Namespace(at_least_s=0.0, printed=printed, **files)
                return cast("Sidecar", launcher.run_script(cell, asked)), warmup, window
        except launcher.FewStepsError as error:
            # A step more may pass before it is known what a step is.
            if not left or (fewer := error.steps - (LOOKS - left)) < 2:
                raise
            warmup = max(1, min(warmup, fewer // 4))
            window = min(window, fewer - warmup)
        except CollectError as error:
            lines = [line.strip() for line in PRINTED.read_text(errors="replace").splitlines() if line.strip()]
            # Python's last line on an error is that error, which the message has.
            known = not lines or (lines[-1].partition(": ")[2] or lines[-1]) in str(error)
            last = "" if known else f"; it printed last: {lines[-1]}"
            raise CollectError(f"{error}{last} (log: {PRINTED})") from None
    raise AssertionError


def _on_cpu() -> dict[str, str]:
    return {"device": "cpu"} if unavailable_tools.lacks_gpu() else {}


def _windows(own: Mapping[str, Any], chosen: Sequence[str], warmup: int, window: int) -> dict[str, int]:
    """Return the windows of tools that are others than their own: fewer steps than these, or more that are timed."""
    found = {}
    for tool in (tools.BASELINE, *chosen):
        words = [f"{key}={own[key]}" for key in ("command", "phase")]
        cell = run.resolve_words("script", own["phase"], tool, [*words, f"warmup={warmup}"])
        most = max(1, window - (cell["steps"] - warmup - cell["window"]))
        if most < cell["window"] or (tool == tools.BASELINE and window > cell["window"]):
            found[tool] = most
    return found


def _choose_tools() -> tuple[list[str], list[tuple[str, str]]]:
    """Return the tools that can profile a script here, and which are left out beside a GPU, and why."""
    on_cpu = unavailable_tools.lacks_gpu()
    default = schema.load_schema()["properties"]["tool"]["default"]
    unable = {} if on_cpu else unavailable_tools.find_unavailable(default, "auto")
    return unavailable_tools.choose_tools(on_cpu), list(unable.items())


def find_programs(typed: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return a command with the path of its program, which is that of the active environment of the user.

    Jobs find the programs of profzoo's own environment first, as a program does that `uvx` starts.
    """
    words, place = [*typed], 0
    if words[0] == ENV:
        place = next((at for at, word in enumerate(words) if at and "=" not in word), 0)
    active = [variables[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if variables.get(name)]
    folders = variables.get("PATH", os.defpath).split(os.pathsep)
    first = [folder for prefix in active if (folder := str(Path(prefix, "bin"))) in folders]
    if os.sep not in words[place] and not words[place].startswith("-"):
        found = shutil.which(words[place], path=os.pathsep.join([*first, *folders]))
        words[place] = found or words[place]
    return words


def propose_name(command: str) -> str:
    """Propose a name for a script: that of its file, or of its folder where the file is named as a phase.

    What a name may not hold is replaced.

    >>> [propose_name(f"python {name}") for name in ("examples/train-gpt.2.py --fast", "tiny/train.py", "-m module")]
    ['train-gpt_2', 'tiny', 'script']
    """
    found = [Path(word).resolve() for word in shlex.split(command) if word.endswith(".py")]
    named = [path.parent.name if path.stem in settings.PHASES else path.stem for path in found]
    name = re.sub(r"[^A-Za-z0-9_-]", "_", named[0]) if named else "script"
    usable = schema.is_name(name, "model") and not registry.is_taken(name)
    return name if usable else f"my_{name}"


def describe_run(facts: "Sidecar") -> list[tuple[str, str]]:
    """Describe by name what a step of the script is, how regular its steps are, and how long one takes."""
    script = facts["script"]
    networks = ", ".join(script["networks"])
    counts = sidecar_files.describe_counts(script["per_step"])
    share = round(script["regular_share"] * 100)
    takes = f"{formatting.format_ns(facts['step_ns'])} per step, {_describe_samples(facts)}, on {facts['device']}"
    lines = [
        ("step", f"{script['step']}: {counts}; {share} % of the steps are like this"),
        ("takes", takes),
        ("network", f"{networks}: {facts['parameters']:,} parameters, {script['observed']['precision']}"),
    ]
    if script["skipped_updates"]:
        lines.append(("skipped", f"{script['skipped_updates']} optimizer steps, by the gradient scaler"))
    return lines


def _describe_samples(facts: "Sidecar") -> str:
    if facts["items"] is None:
        return "samples of a step not known"
    return f"{facts['items'] / facts['steps'] / facts['step_ns'] * 1e9:,.0f} samples/s, batch {facts['batch']}"


def _profile_options() -> list[str]:
    """Return the words of Snakemake's command line that stand in the profile, of which Snakemake would print a line."""
    words = ["--workflow-profile", "none"]
    for key, value in strict_yaml.load_yaml(PROFILE).items():
        given = value if isinstance(value, list) else [] if value is True else [value]
        words += [f"--{key}", *map(str, given)]
    return words


def _default_warmup() -> int:
    found: int = schema.cell_properties()["warmup"]["default"]
    return found


def _default_window() -> int:
    found: int = schema.tool_schemas()[tools.BASELINE]["properties"]["window"]["default"]
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="profzoo advise", description=__doc__, allow_abbrev=False, usage="%(prog)s [options] -- python train.py"
    )
    parser.add_argument(
        "--budget",
        default=BUDGET,
        help=f"the longest time of ncu, on a GPU whose counters may be read; {BUDGET} unless given",
    )
    parser.add_argument(
        rerun_commands.TRY,
        dest="tried",
        metavar="TIME",
        help="try for so long, such as 3m, what can be changed from outside, and say whether it computes the same",
    )
    parser.add_argument(
        "--show-config", action="store_true", help="print the configuration that does the same in a workflow, and end"
    )
    parser.add_argument("--name", help="name of the script in results/; that of its file unless given")
    parser.add_argument(
        "--phase", choices=("train", "inference"), help="train for a script with an optimizer unless given"
    )
    parser.add_argument(
        "--step", default="auto", help="what ends a step: auto, optimizer, module:NAME, range:NAME or dataloader"
    )
    parser.add_argument("--warmup", type=int, default=_default_warmup(), help="steps before the window")
    parser.add_argument(
        "--window", type=int, default=_default_window(), help="steps that are timed; fewer if the script has fewer"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command, as you type it")
    return parser
