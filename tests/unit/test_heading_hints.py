"""Hints of the page's headings come from the data dictionary."""

import re
from pathlib import Path

from profzoo.report import cell_data, comparison_section, heading_hints, overview, value_formats
from tests import whole_zoo


def test_every_plain_heading_has_a_hint() -> None:
    found = heading_hints.list_hints()
    assert set(value_formats.CELL_COLUMNS) <= set(found["cells"]) and set(value_formats.PROCESS_COLUMNS) == set(
        found["processes"]
    )
    for table in ("comparison", "grid"):
        assert set(heading_hints.SAME[table]) <= set(found[table])
    assert found["grid"]["launches"] == "Launches per step. (launches in kernels.csv)"
    assert found["cells"]["power"].endswith("(power_w in cells.csv)")


def test_hints_are_of_headings_that_the_page_has() -> None:
    """A heading that was renamed keeps its hint."""
    found, cell = heading_hints.list_hints(), {"model", "phase", "candidate"}
    # Model and phase need no hint.
    assert {*heading_hints.CELLS, *heading_hints.EXPLAINED} == set(overview.LEADING_COLUMNS) - cell
    assert set(found["comparison"]) == set(comparison_section.COLUMNS) - cell
    assert set(found["parts"]) == set(comparison_section.PART_COLUMNS) - cell
    assert set(found["grid"]) <= {*cell_data.KERNEL_COLUMNS, *cell_data.LAYER_COLUMNS}


def test_headings_on_a_cpu_have_no_hints_of_gpus() -> None:
    assert not [
        text for hints in heading_hints.list_hints(all_on_cpu=True).values() for text in hints.values() if "GPU" in text
    ]


def test_the_page_shows_them(tmp_path: Path) -> None:
    text = whole_zoo.write(tmp_path, drawn=False).read_text()
    heads = dict(re.findall(r'<th scope="col"[^>]* title="([^"]*)">([^<]*)</th>', text))
    assert (
        heads["Throughput: samples of the data per second, by the mean step. (items_per_s in cells.csv)"] == "samples/s"
    )
    assert '"titles":{"ns":"GPU time per step of these launches together. (total_ns in kernels.csv)"' in text


def test_the_table_of_agreement_has_them_for_each_tool(tmp_path: Path) -> None:
    text = whole_zoo.write(tmp_path, drawn=False).read_text()
    assert 'title="Launches per step by the tool that the name begins with. (nsys_launches in agreement.csv)"' in text
    assert '<a href="tables/columns.csv">' in text
