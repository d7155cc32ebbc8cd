"""harness/compiled_kernels: networks that Inductor compiles on the CPU for real, in a process of their own."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from profzoo.io.scripts import write_csv, write_json
from profzoo.tables import layers
from profzoo.tools.torch import compiled, owners
from profzoo.tools.torch import trace as torch_trace
from tests import compiling, slow

# Modules of the forward pass in the order of their kernels, of which each computes one product or all behind it.
FORWARD = ["blocks.0.fc", "blocks.0", "blocks.1.fc", "blocks.1", "blocks.0.fc", "blocks.0", "head"]
Run = Callable[[str], Path]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Function from how the network is compiled to the trace; Inductor's caches are the same for all."""
    folder, made = tmp_path_factory.mktemp("compiled"), set[str]()

    def recorded(how: str) -> Path:
        if how not in made:
            command = [sys.executable, "-m", "tests.compiling", str(folder), how]
            ended = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
            assert not ended.returncode, ended.stderr
            made.add(how)
        return folder / f"{how}.trace.json.gz"

    return recorded


def kernels_of(table: pd.DataFrame) -> pd.DataFrame:
    """The first step's kernels of Inductor and products, in their order."""
    one = table[table["step"].eq(0)].astype({"operator": "str", "module": "str", "type": "str"})
    return one[one["operator"].str.fullmatch(r"fused .*|aten::(mm|addmm|sigmoid)")]


@pytest.mark.parametrize("how", slow.only(["whole", "blocks", "function"], "whole"))
def test_kernels_belong_to_the_modules_of_their_operators(run: Run, how: str, tmp_path: Path) -> None:
    """A block that is compiled by itself shares its code with others, and the first block is called twice."""
    trace = torch_trace.read_trace(run(how))
    table = owners.tabulate_operators(trace)
    known = kernels_of(table)
    forward, backward = (known[known["direction"] == direction] for direction in ("forward", "backward"))
    last = "(forward)" if how == "function" else "(root)"
    assert forward["module"].tolist() == [*FORWARD, last]
    assert forward["type"].tolist()[:3] == ["Linear", "Block", "Linear"]
    # Each product has a gradient of its weights and, but for the first, of its inputs; and each block has a fused norm.
    products = backward[backward["operator"].str.contains("mm")]
    assert set(products["module"]) == {"head", "blocks.0.fc", "blocks.1.fc"} and len(products) >= 7
    assert {"blocks.0", "blocks.1"} <= set(backward["module"]) <= {*FORWARD, last}
    modules = owners.tabulate_modules(trace).set_index("module")
    assert modules.loc[["blocks.0.fc", "blocks.1.norm"], "calls"].tolist() == [2 * compiling.STEPS, compiling.STEPS]
    assert modules.loc["blocks.0.norm", "type"] == "LayerNorm"
    check_tables(table, modules.reset_index(), tmp_path)


def check_tables(table: pd.DataFrame, modules: pd.DataFrame, folder: Path) -> None:
    """Tables of layers and operators add up to the time of all, and name the lines of what was fused."""
    write_csv(table, folder / "launches.csv")
    write_csv(modules[[*owners.MODULES.columns]], folder / "modules.csv")
    write_json({"cell": {"window": compiling.STEPS}}, folder / "s.json")
    outputs = {name: str(folder / f"{name}.csv") for name in ("layers", "operators", "kernels", "coverage")}
    given = [str(folder / name) for name in ("launches.csv", "modules.csv", "s.json")]
    layers.write_layers(*given, layers.Others(), outputs)
    operators = layers.reading.read(outputs["operators"], layers.OPERATORS_TABLE)
    tree = layers.reading.read(outputs["layers"], layers.TABLE)
    spent = table["ns"].sum() / compiling.STEPS
    assert operators["total_ns"].sum() == pytest.approx(spent)
    assert tree.loc[tree["module"] == "(step)", "total_ns"].sum() == pytest.approx(spent)
    norm = operators[operators["module"].eq("blocks.1.norm") & operators["direction"].eq("forward")]
    assert {"aten::var_mean", "aten::mul"} <= set(norm["operator"]) and (norm["divided_share"] == 1).all()
    assert norm["caller"].str.startswith("fused add_native_layer_norm").all()
    text, first = inspect.getsourcelines(compiling.Block.forward)
    (line,) = [first + place for place, one in enumerate(text) if "self.norm" in one]
    assert set(norm["lines"]) == {f"tests/compiling.py:{line}"}
    product = operators[operators["module"].eq("blocks.1.fc") & operators["operator"].eq("aten::addmm")]
    assert len(product) and (product["divided_share"] == 0).all()
    own = tree.set_index(["module", "direction"])["divided_share"]
    assert own["blocks.1.norm", "forward"] == 1 and own["head", "forward"] == 0


@pytest.mark.slow
def test_generated_code_is_the_same_and_caches_hide_nothing(run: Run) -> None:
    """What was compiled without notes is in Inductor's cache when it is compiled with them."""
    plain = torch_trace.read_trace(run("plain"))
    assert not plain.compiled
    table = owners.tabulate_operators(plain)
    assert compiled.PARTS not in table
    known = kernels_of(table)
    assert set(known.loc[known["operator"].str.startswith("fused"), "module"]) == {"(compiled)"}
    noted = run("whole")
    codes = [json.loads(noted.with_name(f"{how}.json").read_text())["code"] for how in ("plain", "whole")]
    assert codes[0] == codes[1] and any("cpp_fused" in line for line in codes[0])
    assert len(torch_trace.read_trace(noted).compiled) == 2
