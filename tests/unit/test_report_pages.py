"""Pages of reports without an ncu: NVIDIA's package tells what a real ncu prints of the same reports."""

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.foreign_reports import ncu_import
from profzoo.tools.ncu import instances, raw_page, report_pages, source_lines
from tests import slow

FOLDER, PACKAGE = os.environ.get("PROFZOO_NCU", ""), os.environ.get("PROFZOO_NCU_REPORT", "")
# Of NVIDIA's programs, whose reports come with ncu.
REPORTS = sorted(map(str, Path(FOLDER, "examples").rglob("*.ncu-rep"))) if FOLDER else []
RAW = ["--page", "raw", "--print-units", "base", "--print-kernel-base"]
# ncu prints two digits behind the point, and four of speedups.
ROUNDED = 0.005001
by_package = pytest.mark.skipif(
    not (PACKAGE and FOLDER),
    reason="PROFZOO_NCU_REPORT names no folder of ncu-report, or PROFZOO_NCU none of ncu: "
    "tests/tools/install-package.sh ncu-report DIR, tests/tools/install-ncu.sh DIR",
)


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have both readers where there are any."""
    monkeypatch.syspath_prepend(PACKAGE)
    monkeypatch.setenv("PATH", f"{FOLDER}/bin{os.pathsep}{os.environ['PATH']}")


def rows(page: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(page)))


def same(one: str, other: str) -> bool:
    """Whether two fields are the same text, or the same number as ncu rounds it."""
    try:
        return abs(float(one.replace(",", "")) - float(other)) <= ROUNDED
    except ValueError:
        return one == other


@by_package
@pytest.mark.parametrize("report", slow.first(REPORTS), ids=lambda path: Path(path).stem)
@pytest.mark.parametrize("base", slow.first(["mangled", "demangled"]))
def test_the_raw_page_has_the_values_that_ncu_prints(tmp_path: Path, report: str, base: str) -> None:
    pages = report_pages.print_page(report, [*RAW, base]), report_pages.print_by_package(report, [*RAW, base])
    read = []
    for number, page in enumerate(pages):
        (tmp_path / f"{number}.csv").write_text(page)
        read.append(raw_page.read_raw(tmp_path / f"{number}.csv"))
    (printed, units), (made, own_units) = read
    assert set(printed) == set(made) and len(printed) == len(made)
    # The package does not tell them.
    compared = [name for name in printed if name not in report_pages.OF_LAUNCH]
    other = [(name, *pair) for name in compared for pair in zip(printed[name], made[name], strict=True)
             if not same(*pair)]  # fmt: skip
    assert other == [] and len(compared) > 800
    # Some units have other words in another release, or none.
    alike = {"hz": "cycle/s", "branches": "warp", "ns": "nsecond"}
    wrong = {name: (unit, own) for name, unit in units.items()
             if (own := own_units.get(name, unit)) != unit and alike.get(own) != unit}  # fmt: skip
    assert wrong == {} and len(own_units) > 300


@by_package
@pytest.mark.parametrize("report", slow.first(REPORTS), ids=lambda path: Path(path).stem)
def test_the_details_page_has_the_metrics_and_the_advice_that_ncu_prints(report: str) -> None:
    words = ["--page", "details"]
    printed, made = rows(report_pages.print_page(report, words)), rows(report_pages.print_by_package(report, words))

    def metrics(page: list[dict[str, str]]) -> set[tuple[str, str]]:
        return {(row["Section Name"], row["Metric Name"]) for row in page if row["Metric Name"]}

    assert metrics(printed) == metrics(made) and len(metrics(made)) > 40
    named = ("Section Name", "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type")
    advice, own = ([row for row in page if row["Rule Name"]] for page in (printed, made))
    assert len(own) == len(advice) > 5
    gains = {tuple(row[name] for name in named): row["Estimated Speedup"] for row in own}
    for row in advice:
        gain = gains[tuple(row[name] for name in named)]
        assert gain == row["Estimated Speedup"] or float(gain) == pytest.approx(
            float(row["Estimated Speedup"]), rel=0.001
        )


@by_package
@pytest.mark.parametrize("report", slow.first(REPORTS), ids=lambda path: Path(path).stem)
def test_metrics_with_several_values_have_those_that_ncu_prints(report: str) -> None:
    printed, made = (
        instances.read_instances(reader(report, instances.PAGE, 0), report)
        for reader in (report_pages.print_page, report_pages.print_by_package)
    )
    keys = ["metric", "kind", "instance", "time_ns"]
    both = printed.merge(made, on=keys, suffixes=("", "_own"), validate="one_to_one")
    assert len(both) == len(printed) == len(made) > 3000
    assert (both["value"] - both["value_own"]).abs().max() <= ROUNDED and both["text"].equals(both["text_own"])


@by_package
def test_launches_are_in_the_ranges_in_which_ncu_prints_them(recording: Callable[[str], Path]) -> None:
    printed = rows(Path(recording("ncu/nvtx.raw.csv")).read_text())[1:]
    made = rows(report_pages.print_by_package(str(recording("ncu/nvtx.ncu-rep")), [*RAW, "mangled"]))[1:]

    def opened(page: list[dict[str, str]]) -> list[list[str]]:
        # ncu moves the quotes of a name.
        found = (re.findall(r'"<default domain>:([^:]*):', row[report_pages.RANGES]) for row in page)
        return [[name.replace('"', "") for name in names] for names in found]

    assert opened(made) == opened(printed) and ["window", "step", "optimizer"] in opened(made)
    # No range, and so no text.
    assert [row[report_pages.RANGES] == "" for row in made] == [row[report_pages.RANGES] == "" for row in printed]
    same_names = ["ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"]
    assert [[row[name] for name in same_names] for row in made] == [
        [row[name] for name in same_names] for row in printed
    ]


@by_package
def test_a_foreign_report_is_imported_without_ncu_as_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = []
    for name in ("with", "without"):
        folder = tmp_path / name
        folder.mkdir()
        outputs = {"pages": str(folder / "pages"), "details": str(folder / "d.csv"), "sidecar": str(folder / "s.json")}
        ncu_import.main(REPORTS[:1], "mine", None, outputs)
        mangled = next((folder / "pages").glob("*.mangled.csv"))
        pages.append((raw_page.read_raw(mangled)[0], raw_page.read_details(folder / "d.csv")))
        monkeypatch.setenv("PATH", str(tmp_path))
    (printed, advice), (made, own) = pages
    assert printed["gpu__time_duration.sum"].tolist() == made["gpu__time_duration.sum"].tolist() != [""]
    assert set(advice["Rule Name"]) == set(own["Rule Name"])


@by_package
def test_the_command_prints_a_page_of_either(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "profzoo.tools.ncu.report_pages", REPORTS[0], *RAW, "mangled"]
    words += ["--metrics", "gpu__time_duration.sum"]
    sources = {"PYTHONPATH": os.pathsep.join([PACKAGE, str(Path(__file__).parents[2])])}
    found = []
    for path in (os.environ["PATH"], str(tmp_path)):
        run = subprocess.run(
            words, capture_output=True, text=True, check=True, env={**os.environ, **sources, "PATH": path}
        )
        found.append(
            {name: value for name, value in rows(run.stdout)[1].items() if name not in report_pages.OF_LAUNCH[1:]}
        )
    assert found[0] == found[1] and float(found[0]["gpu__time_duration.sum"]) > 0


@by_package
@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_report_that_is_cut_off_is_refused(tmp_path: Path, share: float) -> None:
    whole = Path(REPORTS[0]).read_bytes()
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match=r"a.ncu-rep is cut off or damaged"):
        report_pages.print_by_package(str(path), [*RAW, "mangled"])


@by_package
def test_source_lines_need_ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    one = pd.DataFrame({"place": [1], "id": [0], "function": ["f"], "mangled": ["f"]})
    with pytest.raises(DataError, match="only ncu prints source lines, and it is not on PATH: install NVIDIA Nsight"):
        source_lines.tabulate_report(REPORTS[0], one)


def test_without_either_the_message_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    # As where it is not installed.
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    (tmp_path / "a.ncu-rep").write_bytes(b"NVR\0")
    assert not shutil.which("ncu")
    with pytest.raises(DataError) as error:
        report_pages.print_page(str(tmp_path / "a.ncu-rep"), [*RAW, "mangled"])
    said = str(error.value)
    assert re.search(r"a.ncu-rep needs ncu or the package ncu-report, and neither is there", said)
    assert "`ncu --version` must work" in said and "`python -m pip install ncu-report`" in said and "\n" not in said
