"""Runs one cell: `python -m models.run mobilenetv2 train batch=8`, which is exactly what the workflow's jobs run.

Settings are key=value words, named and defaulted as in profzoo/cell/schema.yaml. Exit code 0 means that
every step ran and every loss was finite; 2 that the input cannot be used; 3 a loss that was not finite.
"""

import argparse
import json
import os
import sys
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profzoo.cell import schema, secret_values, settings
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.process_count import batch_count, process_count
from profzoo.errors import CollectError, ConfigError
from profzoo.harness import observed_files
from profzoo.harness.variants import batch_size
from profzoo.machine import doctor_checks, job_child, program_variables
from profzoo.script_harness import launcher

# Folders of Python's library and of installed packages; and a part of the names of files that torch.compile writes.
LIBRARIES, GENERATED = ("stdlib", "platstdlib", "purelib", "platlib"), "torchinductor_"

# Here, as a process that is spawned imports this file before it unpickles what it runs.
observed_files.observe_process()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    job_child.enter_job()
    observed_files.observe_process()
    options = _parser().parse_intermixed_args(arguments)
    if (options.trace is None) != (options.operators is None):
        return _fail(2, "--trace and --operators go together: torch.profiler leaves both")
    tool = _tool_inside() if options.trace else schema.BASELINE
    try:
        asked = resolve_words(options.model, options.phase, tool, options.settings)
        cell: CellSettings = secret_values.reveal_secrets(asked)
        if options.trace and bool(options.steps) != bool(cell["profiler"].get("baseline")):
            raise ConfigError("--steps and profiler.baseline=N go together with --trace: N steps are timed before it")
        facts = _measure(cell, options)
        observed_files.note_files_in_use()
    except (CollectError, ConfigError) as error:
        return _fail(2, str(error))
    except Exception as error:
        traceback.print_exc()
        name = f"{options.model} {options.phase}"
        kind = type(error).__name__
        first = _first_line(error)
        if batch_size.is_out_of_memory(error):
            advice = "set a smaller batch, or batch: auto to find one"
            return _fail(1, f"{name} ran out of memory at batch {cell['batch']}: {advice}. {first}")
        if kind == "NotFiniteError":
            return _fail(3, f"{name}: {first}; try another seed, precision fp32 or a lower learning rate")
        cure = doctor_checks.match_cause(first, doctor_checks.ON_GPU)
        # Errors with a cure are those of a GPU, which are raised later than they happen.
        return _fail(1, f"{name} failed with {kind}: {first}" + (f"; {cure}" if cure else _find_line(error)))
    if facts:
        facts["ran_with"] = asked
        if options.facts:
            options.facts.write_text(json.dumps(facts, indent=1) + "\n")
        _summarise(cell, facts)
    return 0


def prepare(arguments: Sequence[str]) -> None:
    """Do what processes of a model's cell do before they need a device, so that forks of this process need not.

    It imports all that the cell needs, and builds the network that the command line asks for.
    """
    observed_files.observe_process()
    options = _parser().parse_intermixed_args(arguments)
    cell = resolve_words(options.model, options.phase, schema.BASELINE, options.settings)
    from profzoo.harness.step import measure

    measure.follow_files()
    measure.import_lazy_parts(cell)
    measure.keep_network(cell, options.load)


def _measure(cell: CellSettings, options: argparse.Namespace) -> dict[str, Any]:
    """Run a model's cell in this process, or a script's command; returns the facts of the run."""
    if "command" in cell:
        return launcher.run_script(cell, options)
    # Here, so that a mistyped command line is answered without the seconds that importing torch takes.
    from profzoo.harness.step import measure

    measure.follow_files()
    facts = measure.run_cell(measure.fit_batch(cell) if cell["fit"] else cell, options)
    read = program_variables.describe_reads()
    return facts | ({"read_variables": read} if facts and read else {})


def resolve_words(cell_model: str, phase: str, tool: str, words: Sequence[str]) -> CellSettings:
    """Resolve the cell that the command line asks for, over the schema's defaults."""
    given = settings.parse_words(words)
    config = schema.fill_defaults({}, schema.load_schema())
    if "profiler" in given:
        inside = _tool_inside()
        part = schema.load_schema()["properties"][inside]
        config[inside] |= schema.coerce_value(given.pop("profiler"), part)
        schema.check_value(config[inside], part, "profiler")
    name, _ = settings.split_variant(cell_model)
    config["settings"] = {name: given}
    return settings.resolve_cell(cell_model, phase, tool, config)


def _tool_inside() -> str:
    """Return the tool that profiles from inside the measured process, which --trace and `profiler` are about."""
    return next(name for name, part in schema.tool_schemas().items() if "inside" in part)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.run", description=__doc__, allow_abbrev=False)
    parser.add_argument("model", help="a model of the zoo, or model@variant")
    parser.add_argument("phase", help="train or inference")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="such as batch=8 window=1 precision=bf16")
    parser.add_argument("--load", type=_place, metavar="FILE", help="weights to load first")
    parser.add_argument("--save", type=_place, metavar="FILE", help="where to save the weights afterwards")
    parser.add_argument("--facts", type=_place, metavar="FILE", help="JSON on the run: versions, loss, peak memory")
    parser.add_argument("--steps", type=_place, metavar="FILE", help="time the steps, into this CSV")
    parser.add_argument("--at-least-s", type=float, default=0.0, metavar="S", help="let the window last so long")
    parser.add_argument("--memory", type=_place, metavar="FILE", help="what a step more holds in memory, into this CSV")
    parser.add_argument("--remedies", type=json.loads, metavar="JSON", help="settings of which --memory is expected")
    parser.add_argument("--numerics", action="store_true", help="repeat the first steps in double precision afterwards")
    parser.add_argument("--trace", type=_place, metavar="FILE", help="run torch.profiler, its trace into this .json.gz")
    parser.add_argument("--more", type=_place, metavar="FOLDER", help="with --trace: earlier cycles and the snapshot")
    parser.add_argument("--operators", type=_place, metavar="FILE", help="with --trace: torch.profiler's table")
    parser.add_argument("--ranks", type=_place, metavar="FOLDER", help="with --trace: both of each process, in here")
    return parser


def _place(word: str) -> Path:
    """Absolute path of a file: the program may change its working folder."""
    return Path(word).absolute()


def _first_line(error: BaseException) -> str:
    """First line of an error; for an error in a DataLoader worker, the original error's line."""
    lines = (str(error).strip() or "no message").splitlines()
    if "in DataLoader worker process" not in lines[0]:
        return lines[0]
    return lines[-1].removeprefix(f"{type(error).__name__}: ")


def _find_line(error: BaseException) -> str:
    """Innermost line of the program's own that raised an error, as ` (FILE:LINE)`; empty if there is none."""
    others = *(sysconfig.get_path(name) for name in LIBRARIES), str(Path(__file__).parent)
    spellings = tuple(f"{path}{os.sep}" for one in others for path in (one, os.path.realpath(one)))
    frames = [
        (frame.filename.removeprefix(f"{Path.cwd()}{os.sep}"), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", *spellings)) and GENERATED not in frame.filename
    ]
    return " ({}:{})".format(*frames[-1]) if frames else ""


def _fail(code: int, message: str) -> int:
    print(f"profzoo: {message}", file=sys.stderr)
    return code


def _summarise(cell: CellSettings, facts: Mapping[str, Any]) -> None:
    steps, step_ns = facts["steps"], facts["step_ns"]
    times, batches = (f"{count} x " if count > 1 else "" for count in (process_count(cell), batch_count(cell)))
    rate = f"{step_ns / 1e6:.2f} ms per step, " if steps else ""
    # Of some scripts it is not known how many samples a step has.
    rate += f"{facts['items'] / steps / step_ns * 1e9:.1f} samples/s, " if steps and facts["items"] else ""
    loss = f"loss {facts['loss']:.4f}, " if facts["loss"] is not None else ""
    device = facts["device"] + (f" ({facts['device_why']})" if facts["device_why"] else "")
    print(
        f"{cell['model']} {cell['phase']} on {times}{device}: {steps} steps of batch {batches}"
        f"{facts['batch'] or 'unknown'}, {rate}{loss}{facts['parameters']:,} parameters"
    )


if __name__ == "__main__":
    sys.exit(main())
