"""A folder of results from recordings: tables of the whole zoo on an H200, and reports of tools on three trainings.

python -m tests.recorded_results FOLDER writes it, for the notebooks in docs/notebooks.

Steps, kernels, launches, trials and coverage were measured. Recordings have no counters, rooflines, layers and spreads
of steps; formulas fill them in (tests/whole_zoo.py).
"""

import contextlib
import gzip
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.io.columns import AMOUNT, COUNT, WHOLE
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv, write_json
from profzoo.plans import plan_table as plans
from profzoo.tables import cell_tables, kernel_table, layers, schemas
from profzoo.tools.ncu import export as ncu_export
from profzoo.tools.nsys import tables as nsys_export
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from profzoo.verdicts import verdict as verdicts
from tests import whole_zoo
from tests.conftest import DATA

TRACED = ("bert", "mobilenetv2", "unet")
SIDECAR = {"cell": {"model": "mobilenetv2", "phase": "train", "window": 10, "batch": 8, "precision": "fp32"},
           "device": "NVIDIA H200", "device_type": "cuda", "capture": "window", "step_ns": 5e6, "traced_steps": 1}  # fmt: skip


def _unpacked(name: str, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(DATA / f"{name}.gz") as packed, path.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    return path


def _declared(frame: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Return the table with all declared columns; missing ones are empty or 0."""
    kinds = {name: column.kind for name, column in table.columns.items()}
    lacking = {name: "" if kind.pattern is None else None for name, kind in kinds.items() if name not in frame}
    lacking |= {name: 0 for name in lacking if kinds[name] in (COUNT, AMOUNT, WHOLE)}
    whole = [name for name, kind in kinds.items() if kind.whole and name in frame]
    frame = frame.assign(**lacking, **{name: frame[name].astype("float64").round().astype("Int64") for name in whole})
    return frame[[*table.columns, *(name for name in frame if name not in table.columns and table.kind(name))]]


def _nsys_and_ncu(home: Path, folder: Path) -> pd.DataFrame:
    """Write the exports of nsys and ncu for a training; return its row in the table of coverage."""
    trace = _unpacked("nsys/train.sqlite", folder / "train.sqlite")
    write_json(SIDECAR, folder / "rep.json")
    write_json(SIDECAR, home / "train.time.csv.json")
    (nsys, steps), sidecar = (
        (home / f"train.{name}.csv" for name in ("nsys", "nsys-steps")),
        home / "train.nsys.csv.json",
    )
    nsys_export.export_trace(str(trace), str(folder / "rep.json"), str(nsys), str(steps), str(sidecar))
    pages = [str(_unpacked(f"ncu/launch.raw.{kind}.csv", folder / f"{kind}.csv")) for kind in ("mangled", "demangled")]
    ncu = home / "train.ncu.launch.csv"
    write_csv(ncu_export.tabulate_report({1: pages}, {"command": []}, None, "all").table, ncu)
    compared = home / "train.ncu.launch.coverage.csv"
    kernel_table.write_coverage(str(nsys), str(ncu), None, str(compared))
    read = cell_tables.read([str(compared)], kernel_table.COVERAGE_TABLE)
    return cell_tables.coverages([(cell, "launch", table) for cell, table in read])


def _torch(home: Path, model: str, folder: Path) -> None:
    """Write the launches of a training with their owners, and its layers."""
    trace = torch_trace.read_trace(_unpacked(f"torch/{model}.train.trace.json", folder / f"{model}.json"))
    launches, modules = home / "train.torch.launches.csv", home / "train.torch.modules.csv"
    write_csv(owners.tabulate_launches(trace), launches)
    write_csv(owners.tabulate_modules(trace), modules)
    write_json(SIDECAR | {"cell": {**SIDECAR["cell"], "model": model, "window": 1}}, folder / "trace.json")
    names = {"layers": "layers", "operators": "operators", "kernels": "layer-kernels", "coverage": "owners"}
    outputs = {name: str(home / f"train.{file}.csv") for name, file in names.items()}
    layers.write_layers(str(launches), str(modules), str(folder / "trace.json"), layers.Others(), outputs)


def _told_apart(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the kernel table with unique names, because the recording shortened some names to the same text."""
    number = kernels.groupby(schemas.TABLES["kernels"].key, sort=False).cumcount()
    return kernels.assign(mangled=kernels["mangled"].where(number == 0, kernels["mangled"] + "#" + number.astype(str)))


def write(folder: Path) -> Path:
    """Write the results into an empty or new folder, and return the folder."""
    tables, raw = folder / "tables", folder / ".raw"
    tables.mkdir(parents=True)
    raw.mkdir()
    for model in TRACED:
        (folder / model).mkdir()
        _torch(folder / model, model, raw)
    given: dict[str, pd.DataFrame] = {
        **whole_zoo.tables(), "coverage": _nsys_and_ncu(folder / "mobilenetv2", raw),
        "trials": pd.concat([pd.read_csv(path, keep_default_na=False) for path in sorted(DATA.glob("trials/h200.csv"))]),
    }  # fmt: skip
    for name in ("cells", "steps", "kernels", "roofline", "activity", "agreement", "ranges", "coverage", "layers"):
        given[name] = _told_apart(given[name]) if name == "kernels" else given[name]
        write_csv(_declared(given[name], schemas.TABLES[name]), tables / f"{name}.csv")
    write_csv(_declared(given["verdicts"], verdicts.VERDICTS_TABLE), tables / "verdicts.csv")
    write_csv(_declared(given["plans"], plans.PLANS_TABLE), tables / "plans.csv")
    write_csv(given["trials"], tables / "trials.csv")
    shutil.rmtree(raw)
    return folder


def write_few(folder: Path, space: Path) -> Path:
    """Write the results of three models, of which verdicts and plans are soon found; space: a folder of its own."""
    models = ("bert", "lstm", "mobilenetv2")
    (space / "zoo").mkdir(parents=True)
    for name in ("steps.csv", "kernels.csv.gz"):
        table = pd.read_csv(DATA / "zoo" / name, keep_default_na=False)
        table[table["model"].isin(models)].to_csv(space / "zoo" / name, index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_zoo, "DATA", space)
        few = whole_zoo._make_tables.__wrapped__(2 * len(models))
        patch.setattr(whole_zoo, "tables", lambda: few)
        patch.setattr(sys.modules[__name__], "TRACED", [model for model in TRACED if model in models])
        return write(folder)


def run_notebook(path: Path, results: Path, folder: Path) -> list[str]:
    """Return what each code cell of a notebook prints, run in order in the notebook's place beside these results.

    folder: an empty folder for the place. The working directory and sys.path are left as they were.
    """
    (folder / "results").symlink_to(results)
    home = folder / "docs" / "notebooks"
    home.mkdir(parents=True)
    space: dict[str, object] = {}
    printed, before = [], [*sys.path]
    with contextlib.chdir(home):
        for number, cell in enumerate(code_cells(path), 1):
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), space)
            printed.append(output.getvalue())
    sys.path[:] = before
    return printed


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [one for one in json.loads(path.read_text(encoding="utf-8"))["cells"] if one["cell_type"] == "code"]


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
