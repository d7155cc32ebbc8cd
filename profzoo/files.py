"""What every adapter of a script does: errors in one line, into the log and onto the console, and whole files."""

import csv
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from profzoo.errors import ConfigError, DataError
from profzoo.reading import facts


@contextmanager
def reported(log: str) -> Iterator[Callable[[object], None]]:
    """Run the body with its output in the log; end with one line for what is wrong with the data.

    Yields a function that says a line on the console too.
    """
    with Path(log).open("w") as file:
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


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a tidy CSV: UTF-8, one header row, no index, empty where there is no value."""
    # Python leaves a lone carriage return unquoted, and readers take it for the end of a line.
    texts = frame.select_dtypes(exclude=["number", "bool"])
    odd = any(_distinct(texts.iloc[:, index]).astype("str").str.contains("\r").any() for index in range(texts.shape[1]))
    quoting = csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL
    frame.to_csv(path, index=False, lineterminator="\n", quoting=quoting)


def _distinct(column: pd.Series) -> pd.Series:
    """What a column may hold: a categorical one, such as that of a million launches' names, holds each text once."""
    return pd.Series(column.cat.categories) if isinstance(column.dtype, pd.CategoricalDtype) else column


def read_json(path: str | Path, needs: facts.Needs = facts.NOTHING) -> dict[str, Any]:
    """A sidecar, as facts.read; needs: keys that it must have, with what they hold."""
    return facts.read(path, needs)


def write_json(content: Mapping[str, Any], path: str | Path) -> None:
    """Write a sidecar."""
    Path(path).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def listed(files: str | Sequence[str]) -> list[str]:
    """The files of an input that holds any number; Snakemake hands over a single one as such."""
    return [files] if isinstance(files, str) else list(files)
