"""Code shared by all scripts of rules: one-line errors in log and console, checked inputs, and complete outputs.

Inputs are compared with their records. Outputs are made in a private folder and moved into place with a record of the
job.
"""

import csv
import json
import runpy
import sys
import traceback
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from profzoo.errors import ConfigError, DataError
from profzoo.io import file_checks, sidecars
from profzoo.records import derived_outputs, digests, import_graph

as_list = derived_outputs.as_list


class PrivateOutputs(list[str]):
    """Private paths of a job's outputs, by the rule's order and names, in the form of Snakemake's own object."""

    def __init__(self, given: Any, made: Sequence[Path]) -> None:
        super().__init__(map(str, made))
        places = dict(zip(map(str, given), self, strict=True))
        self._named = {name: places[str(path)] for name, path in given.items() if str(path) in places}

    def __getattr__(self, name: str) -> str:
        """Private path of the output with that name."""
        if name.startswith("_") or name not in self._named:
            raise AttributeError(f"the rule has no output {name}")
        return self._named[name]

    def items(self) -> ItemsView[str, str]:
        """Names of outputs, each with its private path."""
        return self._named.items()


@dataclass(frozen=True)
class ScriptJob:
    """A script's job: Snakemake's inputs, parameters and wildcards, and private paths for its outputs.

    say: function that prints a line to the log and the console. folder: final folder of the outputs.
    """

    input: Any
    output: PrivateOutputs
    params: Any
    wildcards: Any
    say: Callable[[object], None]
    folder: Path


def run_joined(snakemake: Any) -> None:
    """Run the scripts of the rules that a job joins in this process; what fails costs only what reads its files.

    snakemake: the object that Snakemake passes to the script of a joint rule (profzoo/workflow/joint_rules.py).
    """
    failed = set[str]()
    for part in derived_outputs.split_job(snakemake, snakemake.rule):
        if failed.intersection(as_list(part.input)):
            failed.update(map(str, part.output))
            continue
        try:
            runpy.run_path(next(path for path in as_list(part.input) if is_script(path)), {"snakemake": part})
        except SystemExit:
            failed.update(map(str, part.output))
        except Exception:
            traceback.print_exc()
            failed.update(map(str, part.output))
    if failed:
        sys.exit(1)


def is_script(path: str) -> bool:
    """Return whether a path is that of a rule's script."""
    return path.endswith(".py") and Path(path).parent.name == "scripts"


@contextmanager
def begin_script(snakemake: Any) -> Iterator[ScriptJob]:
    """Yield a script's job; after the body, its outputs move into place with a record.

    snakemake: the object that Snakemake passes to a script, or a part of a joint job. Errors in the data end it with
    one line (report_errors). Its inputs with the name `sources` are the user's own files, which may be empty; all
    others have to be whole.
    """
    outputs, root = [Path(str(path)) for path in snakemake.output], import_graph.PROJECT
    code, read = derived_outputs.split_inputs(as_list(snakemake.input), root)
    own = {Path(path) for path in as_list(snakemake.input.get("sources", []))}
    with report_errors(snakemake.log[0]) as say:
        import_graph.load_statements()
        sources = derived_outputs.source_digests(import_graph.files_of_inputs(code), root)
        inputs = file_checks.require_whole([path for path in read if path not in own])
        inputs |= {path: digests.compute_digest(path) for path in read if path in own}
        with derived_outputs.make_privately(outputs) as made:
            places = PrivateOutputs(snakemake.output, made)
            tell = partial(_say_of, say, dict(zip(map(str, made), map(str, outputs), strict=True)))
            yield ScriptJob(snakemake.input, places, snakemake.params, snakemake.wildcards, tell, outputs[0].parent)
        job = derived_outputs.describe_job(snakemake.rule, derived_outputs.collect_params(snakemake.params))
        derived_outputs.keep_record(outputs, job, inputs, sources)


@contextmanager
def report_errors(log: str) -> Iterator[Callable[[object], None]]:
    """Run the body with its output in the log; an error in the data ends the process with one line.

    Yields a function that prints a line to the log and to the console.
    """
    with _fresh(Path(log)) as file:
        console, sys.stdout, sys.stderr = (sys.stdout, sys.stderr), file, file

        def say(line: object) -> None:
            print(line, file=file, flush=True)
            print(f"profzoo: {line}", file=console[1], flush=True)

        try:
            yield say
        except (DataError, ConfigError) as error:
            # A log that ends so is of a job that failed.
            for stream in (file, console[1]):
                print(f"profzoo: {error}", file=stream, flush=True)
            sys.exit(1)
        except Exception:
            traceback.print_exc(file=file)
            raise
        finally:
            sys.stdout, sys.stderr = console


def _fresh(log: Path) -> TextIO:
    """Open a new log in place of an earlier one; the target of a link is not written."""
    if log.is_symlink() or log.is_file():
        log.unlink()
    try:
        return log.open("x")
    except FileExistsError:
        print(f"profzoo: {log} is not a file, where the log of a job is to be: remove it", file=sys.stderr)
        sys.exit(1)


def _say_of(say: Callable[[object], None], places: Mapping[str, str], line: object) -> None:
    """Print a line in which private paths are replaced by final ones."""
    text = str(line)
    for private, final in places.items():
        text = text.replace(private, final)
    say(text)


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a CSV: UTF-8, one header row, no index, empty fields for missing values."""
    # Python leaves a lone carriage return unquoted, and readers take it for the end of a line.
    texts = frame.select_dtypes(exclude=["number", "bool"])
    odd = any(_distinct(texts.iloc[:, index]).astype("str").str.contains("\r").any() for index in range(texts.shape[1]))
    quoting = csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL
    frame.to_csv(path, index=False, lineterminator="\n", quoting=quoting)


def _distinct(column: pd.Series) -> pd.Series:
    """Return distinct values of a column; fast for a categorical one, such as the names of a million launches."""
    return pd.Series(column.cat.categories) if isinstance(column.dtype, pd.CategoricalDtype) else column


def read_json(path: str | Path, needs: sidecars.Needs = sidecars.NOTHING) -> dict[str, Any]:
    """Read a sidecar; needs: required keys with their types."""
    return sidecars.read_sidecar(path, needs)


def write_json(content: Mapping[str, Any], path: str | Path) -> None:
    """Write a sidecar."""
    Path(path).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def write_text(content: str, path: str | Path) -> None:
    """Write a text as UTF-8."""
    Path(path).write_text(content, encoding="utf-8")
