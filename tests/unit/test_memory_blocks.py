"""The data that cells are drawn from: small, told by the same names as tables, and nothing that ends it early."""

import json

import pandas as pd
import pytest

from profzoo.report import cell_data
from tests import whole_zoo


@pytest.fixture(scope="module")
def cell() -> dict[str, pd.DataFrame]:
    given = whole_zoo.tables()
    return {name: given[name][(given[name]["model"] == "unet") & (given[name]["phase"] == "train")]
            for name in ("kernels", "roofline", "layers")}  # fmt: skip


def column(packed: dict, name: str) -> list:
    values = packed[name]
    return [values["words"][place] for place in values["places"]] if isinstance(values, dict) else values


def test_kernels_are_those_of_the_table_longest_first(cell: dict[str, pd.DataFrame]) -> None:
    found = json.loads(cell_data.cell_block(cell, None) or "")["kernels"]
    times = column(found, "ns")
    assert len(times) == len(cell["kernels"]) and times == sorted(times, reverse=True)
    assert sum(times) == pytest.approx(cell["kernels"]["total_ns"].sum(), rel=1e-3)
    row = cell["kernels"].sort_values("total_ns", ascending=False, kind="stable").iloc[0]
    assert column(found, "bytes")[0] == pytest.approx(row["dram_bytes"] * row["launches"], rel=1e-3)
    assert set(column(found, "bound")) <= {"dram", "l2", "simt", "tensor", ""}
    assert column(found, "bound").count("") < len(times) / 2


def test_layers_are_those_with_time_of_their_own(cell: dict[str, pd.DataFrame]) -> None:
    found = json.loads(cell_data.cell_block(cell, None) or "")
    own = cell["layers"][cell["layers"]["self_ns"] > 0]
    assert sorted(column(found["layers"], "name")) == sorted(own["module"])
    assert len(column(found["tree"], "name")) == len(cell["layers"])


def test_names_of_the_step_are_those_of_the_table(cell: dict[str, pd.DataFrame]) -> None:
    (kernel, *_) = cell["kernels"]["kernel"]
    step = {"names": ["step", kernel], "streams": {"7": [[0, 5, 1]]}, "ranges": [[0, 9, 0]], "calls": [], "gaps": []}
    found = json.loads(cell_data.cell_block(cell, step) or "")
    assert found["timeline"]["names"][1] in column(found["kernels"], "name")
    assert found["timeline"]["names"][0] == "step" and found["timeline"]["classes"][0] == ""


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "<!--", "a\u2028b", "ü & <T>"])
def test_no_name_ends_the_block(cell: dict[str, pd.DataFrame], name: str) -> None:
    layers = cell["layers"].assign(module=name)
    text = str(cell_data.cell_block({"layers": layers}, None))
    assert "<" not in text and "\u2028" not in text
    assert set(column(json.loads(text)["tree"], "name")) == {name}


def test_a_cell_of_which_nothing_is_known_has_no_block() -> None:
    assert cell_data.cell_block({}, None) is None
