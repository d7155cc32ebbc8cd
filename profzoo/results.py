"""What a folder of results holds, for notebooks: tables as typed frames with units, cells, verdicts, and sidecars.

import profzoo

results = profzoo.load("results")
results.kernels                        # a table across the zoo, also results.tables["kernels"]
results.units("kernels")["total_ns"]   # 'ns'
results.cell("bert", "train").steps    # the unprofiled steps of a cell
results.cell("bert", "train").plans()  # the possible settings of a cell, the best plan first
results.verdicts("bert", "train")      # its bottlenecks, and what to do about them
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pandas as pd

from profzoo import tools
from profzoo.catalog import csv_files
from profzoo.catalog.csv_files import CSV_FILES
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.job_types import Sidecar
from profzoo.cell.registry import PHASES_OF_FILES as PHASES
from profzoo.errors import DataError, suggest_nearest
from profzoo.io.scripts import read_json
from profzoo.tables import schemas
from profzoo.tools import unavailable_tools


class MissingError(DataError, LookupError):
    """A requested table, cell or sidecar does not exist; the message names the nearest one, or the command for it."""


class Tables(Mapping[str, pd.DataFrame]):
    """Tables by name. Each is read once, at the first request; every request returns a copy, which may be changed.

    `frame.attrs` has `units` and `meanings` by column, and `path`.
    """

    def __init__(self, paths: Mapping[str, Path], root: Path, known: Mapping[str, str], of: str) -> None:
        """Name the tables without reading them.

        paths: the existing tables by name. root: the folder of results. known: commands that make tables, by name of
        the table. of: the folder or cell to which the tables belong, for messages.
        """
        self._paths, self._root, self._known, self._of = paths, root, known, of
        self._read: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        """Return the table with this name.

        Raises:
            MissingError: there is no such table.
            DataError: the file does not match the declaration of the table.
        """
        if name not in self._paths:
            raise self._missing(name)
        if name not in self._read:
            self._read[name] = _frame(self._paths[name], self._root)
        return self._read[name].copy()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the existing tables."""
        return iter(self._paths)

    def __len__(self) -> int:
        """Return the number of existing tables."""
        return len(self._paths)

    def __contains__(self, name: object) -> bool:
        """Return whether a table with this name exists."""
        return name in self._paths

    def __repr__(self) -> str:
        """List the names of the tables."""
        return f"tables of {self._of}: {', '.join(self._paths) or 'none'}"

    def _missing(self, name: str) -> MissingError:
        if name in self._known:
            return MissingError(f"{self._of} has no table {name}: {unavailable_tools.name_maker(self._known[name])} it")
        nearest = suggest_nearest(name, {*self._known, *self._paths})
        return MissingError(f"there is no table {name!r} of {self._of}: {nearest}")


class Cell:
    """The results of one model and phase.

    tables: the cell's own CSV files, by the part of the name between the phase and `.csv`, such as `time`, `nsys`,
    `ncu.roofline` or `torch.launches`. files: paths of all files of the cell.
    """

    def __init__(self, results: "Results", model: str, phase: str) -> None:
        self.model, self.phase, self._results = model, phase, results
        home, start = results.folder / model, f"{phase}."
        self.files: Sequence[Path] = sorted(path for path in home.iterdir() if path.name.startswith(start))
        paths = {path.stem.removeprefix(start): path for path in self.files if path.suffix == ".csv"}
        kinds = [pattern.partition("{phase}.")[2] for pattern in CSV_FILES if pattern.startswith("{model}")]
        target = f"snakemake {name_target(home)}/{phase}"
        known = {kind.removesuffix(".csv"): f"{target}.{kind}" for kind in kinds if "{" not in kind}
        self.tables = Tables(paths, results.folder, known, f"{model} {phase}")

    @property
    def steps(self) -> pd.DataFrame:
        """The steps of the unprofiled baseline, one row per step: wall time, GPU time and number of data samples."""
        # With `torch.baseline`, the baseline's steps run in the process that torch.profiler profiles afterwards.
        return self.tables[next((name for name in tools.timed_tables() if name in self.tables), tools.BASELINE)]

    @property
    def settings(self) -> CellSettings:
        """The settings that the cell ran with, such as batch and precision.

        Raises:
            MissingError: no sidecar of the cell has settings.
        """
        timed = [name for name in (f"{table}.csv" for table in tools.timed_tables()) if name in self.sidecars]
        for name in [*timed, *self.sidecars]:
            if (found := self.sidecar(name).get("cell")) is not None:
                return found
        file = f"{name_target(self._results.folder)}/{self.model}/{self.phase}.time.csv"
        makes = unavailable_tools.name_maker(f"snakemake {file}")
        raise MissingError(f"{self.model} {self.phase} has no sidecar with its settings: {makes} one")

    @property
    def sidecars(self) -> Sequence[str]:
        """The names of the files with a sidecar, as arguments of `sidecar`."""
        start = f"{self.phase}."
        return [path.stem.removeprefix(start) for path in self.files if path.suffix == ".json"]

    def sidecar(self, name: str = "time.csv") -> Sidecar:
        """Return the sidecar of a file, such as `time.csv`, `ncu-rep`, `nsys.csv` or `trace.json.gz`.

        Raises:
            MissingError: the file has no sidecar.
        """
        path = self._results.folder / self.model / f"{self.phase}.{name.removesuffix('.json')}.json"
        if not path.exists():
            nearest = suggest_nearest(name, self.sidecars)
            raise MissingError(f"{self.model} {self.phase} has no sidecar {name!r}: {nearest}")
        return cast(Sidecar, read_json(path))

    def rows(self, table: str) -> pd.DataFrame:
        """Return the cell's rows of a table across the zoo, such as `kernels`."""
        return self._results.rows_of_cell(table, self.model, self.phase)

    def verdicts(self) -> pd.DataFrame:
        """Return the verdicts on the cell, its kernels and layers, the largest expected gain first."""
        return self.rows("verdicts")

    def plans(self) -> pd.DataFrame:
        """Return the cell's plans, the best first, and after them settings that are not possible, with the reason."""
        return self.rows("plans")

    def comparison(self) -> pd.DataFrame:
        """Return the comparison of the cell with its reference side."""
        return self.rows("compare")

    def trials(self) -> pd.DataFrame:
        """Return the settings that trials ran on the cell, with their measured gains."""
        return self.rows("trials")

    def __repr__(self) -> str:
        """Name the cell and list its tables."""
        return f"{self.model} {self.phase}: tables {', '.join(self.tables) or 'none'}"


class Results:
    """The results in a folder; tables across the zoo are also attributes, such as `results.kernels`.

    folder: path of the folder; tables: the tables across the zoo, by name.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            maker = unavailable_tools.name_maker("snakemake report")
            raise DataError(f"{folder} is not a folder of results: {maker} one")
        paths = {path.stem: path for path in sorted((self.folder / "tables").glob("*.csv"))}
        known = {
            name: csv_files.COMMANDS.get(name, f"snakemake {name_target(self.folder)}/tables/{name}.csv")
            for name in _names()
        }
        self.tables = Tables(paths, self.folder, known, str(folder))
        self._cells: dict[tuple[str, str], Cell] = {}

    def __getattr__(self, name: str) -> pd.DataFrame:
        """Return the table across the zoo with this name."""
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.tables[name]
        except MissingError as error:
            raise AttributeError(str(error)) from None

    def __dir__(self) -> list[str]:
        """List the names that a notebook completes."""
        return [*super().__dir__(), *(name for name in self.tables if name.isidentifier())]

    def __repr__(self) -> str:
        """Name the folder and list its tables."""
        return f"results in {self.folder}: tables {', '.join(self.tables) or 'none'}"

    def all_cells(self) -> list[tuple[str, str]]:
        """Return (model, phase) of every cell with files, or with a row in the table of cells; sorted."""
        found = {
            (path.parent.name, phase) for phase in PHASES for path in self.folder.glob(f"*/{phase}.*") if path.is_file()
        }
        if "cells" in self.tables:
            table = self.tables["cells"]
            found |= set(zip(table["model"], table["phase"], strict=True))
        return sorted(found)

    def cell(self, model: str, phase: str = "train") -> Cell:
        """Return the results of one cell.

        Raises:
            MissingError: there is no such cell.
        """
        self.require_cell(model, phase)
        if not (self.folder / model).is_dir():
            makes = unavailable_tools.name_maker(f"snakemake report --config models={model.partition('@')[0]}")
            raise MissingError(f"{self.folder} has rows of {model} {phase} in its tables, but no files: {makes} them")
        if (model, phase) not in self._cells:
            self._cells[model, phase] = Cell(self, model, phase)
        return self._cells[model, phase]

    def rows_of_cell(self, table: str, model: str, phase: str = "train") -> pd.DataFrame:
        """Return the rows of a cell in a table across the zoo; an empty frame if it has none.

        Raises:
            MissingError: there is no such table or cell.
        """
        frame = self.tables[table]
        self.require_cell(model, phase)
        return schemas.rows_of_cell(frame, model, phase).reset_index(drop=True)

    def verdicts(self, model: str, phase: str = "train") -> pd.DataFrame:
        """Return the verdicts on a cell, its kernels and layers, by level and rank; all cells: tables["verdicts"]."""
        return self.rows_of_cell("verdicts", model, phase)

    def comparison(self, model: str, phase: str = "train") -> pd.DataFrame:
        """Return the comparison of a cell with its reference side; all cells: tables["compare"]."""
        return self.rows_of_cell("compare", model, phase)

    def columns(self, table: str) -> pd.DataFrame:
        """Return one row per column of a table across the zoo: column, unit, meaning, tool and clock.

        Raises:
            MissingError: there is no such table.
        """
        rows = csv_files.tabulate_columns()
        found = rows[rows["table"] == f"tables/{table}.csv"].drop(columns="table").reset_index(drop=True)
        if found.empty:
            raise MissingError(f"there is no table {table!r}: {suggest_nearest(table, _names())}")
        return found

    def units(self, table: str) -> dict[str, str]:
        """Return the units of a table across the zoo, by column; columns without a unit are left out."""
        return dict(self.tables[table].attrs["units"])

    def meanings(self, table: str) -> dict[str, str]:
        """Return the meanings of the columns of a table across the zoo, by column."""
        return dict(self.tables[table].attrs["meanings"])

    def require_cell(self, model: str, phase: str) -> None:
        """Raise MissingError, which names the nearest cell, if there is no such cell."""
        cells = self.all_cells()
        if (model, phase) in cells:
            return
        if model not in (models := {name for name, _ in cells}):
            raise MissingError(f"{self.folder} has no model {model!r}: {suggest_nearest(model, models)}")
        there = [one for name, one in cells if name == model]
        raise MissingError(f"{self.folder} has no {model} {phase}: {suggest_nearest(phase, there)}")


def name_target(folder: Path) -> str:
    """Return a folder of results as Snakemake's targets name it: `results`, and what follows in its path."""
    parts = folder.resolve().parts
    return "/".join(parts[len(parts) - 1 - parts[::-1].index("results") :]) if "results" in parts else folder.as_posix()


def _names() -> list[str]:
    """Return the names of all possible tables across the zoo."""
    return [Path(pattern).stem for pattern in CSV_FILES if pattern.startswith("tables/")]


def _frame(path: Path, root: Path) -> pd.DataFrame:
    """Read a table by its declaration, with units and meanings; read an undeclared file with pandas."""
    frame, table = csv_files.read_file(path, path.relative_to(root).as_posix())
    described = {name: column for name in frame if table and (column := table.describe(name))}
    units = {name: column.unit for name, column in described.items() if column.unit}
    meanings = {name: column.means for name, column in described.items()}
    frame.attrs = {"units": units, "meanings": meanings, "path": str(path)}
    return frame
