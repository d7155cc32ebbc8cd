"""What a user asks for by name is made: that, what it needs, and nothing else; Snakemake's own report carries it."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from models import lstm
from profzoo.document import rule_picture
from profzoo.report import packed_blocks
from tests import slow
from tests.faults.jobs import wait, wait_for_ends
from tests.workflow import forked
from tests.workflow.project import CHECKOUT, STANDINS, Project, finished, rules

# Written into a program: says in which process it runs.
SAYS = "from pathlib import Path as Said\n\nSaid({!r}).write_text(Said('/proc/self/cmdline').read_text())\n"


def test_all_without_a_core_count(built: Project) -> None:
    cells = {f"{model}/{phase}" for model in ("lstm", "unet") for phase in ("train", "inference")}
    wanted = {f"{cell}.{end}" for cell in cells for end in ("time.csv", "torch.csv", "trace.json.gz")}
    assert wanted <= built.files()
    rows = list(csv.DictReader(io.StringIO(built.read("results/tables/cells.csv"))))
    assert {f"{row['model']}/{row['phase']}" for row in rows} == cells


def test_one_file_makes_only_what_it_needs_by_scripts_and_cells_in_forks(fresh: Project) -> None:
    """A server refuses programs whose variables differ from its own, which then run too, but take seconds longer."""
    programs = {"workflow/scripts/export_torch.py": "script", "models/lstm.py": "cell"}
    for path, name in programs.items():
        fresh.write(path, fresh.read(path) + SAYS.format(str(fresh.root / name)))
    fresh.snakemake("-j1", "results/lstm/train.torch.csv")
    for name in programs.values():
        assert "forks.py" in fresh.read(name), name
    ends = {"torch.csv", "torch.launches.csv", "torch.modules.csv", "torch.ranges.csv", "torch.dtypes.csv"}
    ends |= {"torch-operators.csv", "trace.json.gz", "trace.json.gz.json"}
    assert fresh.files() == {f"lstm/train.{end}" for end in ends}


# Facts that differ between two measurements, by the last part of their names.
MEASURED = {
    "commit_changed", "cpu_taken_share", "double_precision", "files", "peak_rss_bytes", "roof", "run",
    "sha256_of_the_rest", "started", "step_ns", "wall_ns", "wall_s", "window_began_ns", "window_wall_ns", "written",
}  # fmt: skip


def facts_but_measured(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a sidecar without those that each measurement has of its own."""
    return {
        name: facts_but_measured(value) if isinstance(value, dict) else value
        for name, value in facts.items()
        if name not in MEASURED
    }


@pytest.mark.slow
def test_a_forked_job_leaves_what_one_by_itself_leaves(fresh: Project) -> None:
    fresh.forks_cells = False
    fresh.write("models/lstm.py", fresh.read("models/lstm.py") + SAYS.format(str(fresh.root / "cell")))
    left, targets = {}, ("results/lstm/train.time.csv", "results/lstm/train.torch.csv")
    for fork in ("true", "false"):
        fresh.snakemake("-j1", *targets, "--config", f"fork={fork}")
        assert ("forks.py\0jobs" in fresh.read("cell")) == (fork == "true")
        paths = sorted(path for path in fresh.files() if path.endswith(".json"))
        facts = {path: json.loads(fresh.read(f"results/{path}")) for path in paths}
        rows = list(csv.DictReader(io.StringIO(fresh.read(targets[1]))))
        left[fork] = (
            fresh.files(),
            {path: facts_but_measured(one) for path, one in facts.items()},
            sorted((row["kind"], row["name"], row["count"]) for row in rows),
            [re.sub(r"\.making/\w+|[\d.,]+ (ms|samples|steps)", "", fresh.read(f"results/logs/lstm/train.{tool}.log"))
             .splitlines()[0] for tool in ("time", "torch")],
        )  # fmt: skip
        peaks = [one["peak_rss_bytes"] for one in facts.values()]
        left[fork + " memory"] = peaks
        shutil.rmtree(fresh.root / "results")
    assert left["true"] == left["false"]
    # Memory is counted as if the process had imported everything by itself.
    assert [round(one / other, 1) for one, other in zip(left["true memory"], left["false memory"], strict=True)] == [
        1,
        1,
    ]


# Written into a model: says in which process it runs, by which server, and stays.
STAYS = """
import json, os, time
from pathlib import Path as Said

above, ids = os.getpid(), []
while above > 1:
    ids.append(above)
    above = int(Said(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
servers = [one for one in ids if b"forks.py" in Said(f"/proc/{one}/cmdline").read_bytes()]
Said("__new__").write_text(json.dumps(servers))
Said("__new__").rename("__cell__")
time.sleep(60)
"""


@pytest.mark.parametrize("harm", slow.first(["SIGTERM", "SIGINT", "SIGKILL"]))
def test_a_run_that_ends_leaves_no_forked_job(fresh: Project, harm: str) -> None:
    """SIGINT reaches all processes of a terminal, SIGKILL the run alone."""
    fresh.forks_cells = False
    cell = fresh.root / "cell"
    fresh.write("models/lstm.py", STAYS.replace("__cell__", str(cell)).replace("__new__", f"{cell}.new"))
    text = (CHECKOUT / "models" / "lstm.py").read_text()
    fresh.write("models/lstm.py", text + fresh.read("models/lstm.py"))
    run = fresh.begun("-j1", "results/lstm/train.time.csv", "--configfile", "tiny.yaml")
    wait(cell.exists, 60)
    ids = json.loads(cell.read_text())
    # The cell, its supervisor, the process that reports the supervisor's end, and the server with its first stage.
    assert len(ids) == 5
    if harm == "SIGINT":
        os.killpg(run.pid, signal.SIGINT)
    else:
        run.send_signal(getattr(signal, harm))
    assert finished(run)[0]
    wait_for_ends(ids, 60)
    assert not any(path.endswith(".csv") for path in fresh.files())


def test_report_opens_offline(built: Project) -> None:
    page = built.read("results/report.html")
    drawn = [text for text in packed_blocks.list_blocks(page, "drawn") if text.startswith("<svg")]
    assert len(drawn) == len([*built.root.glob("results/figures/*.svg")]) > 4
    assert not re.findall(r"""(?:src|srcset|data)\s*=\s*["']?\s*(?:https?:)?//""", page)
    assert not re.findall(r"""<(?:script|link)\b[^>]*(?:src|href)=(?!"data:,")""", page)
    assert not re.findall(r"""url\(\s*["']?(?:https?:)?//|@import""", page)


def test_every_link_of_the_report_leads_somewhere(built: Project) -> None:
    page = built.read("results/report.html")
    ids = set(re.findall(r'\bid="([^"]+)"', page))
    for link in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', page):
        if link.startswith("#"):
            assert link[1:] in ids
        elif "://" not in link:
            assert (built.root / "results" / link).exists(), link
        else:
            assert re.match(r"https?://ui\.perfetto\.dev", link), link


@pytest.mark.slow
def test_the_picture_of_the_rules_shows_those_that_there_are(fresh: Project) -> None:
    """`make docs` draws it by this line."""
    (line,) = re.findall(r"snakemake (report --rulegraph [^\\]+)", (CHECKOUT / "Makefile").read_text())
    graph = forked.snakemake(line.split(), fresh.root, fresh.environment()).stdout
    picture = (CHECKOUT / "docs" / "pictures" / "rules.svg").read_text()
    assert rule_picture.draw_rules(rule_picture.read_arrows(graph)) == picture, "`make docs` draws it anew"


@pytest.mark.slow
def test_doctor_without_a_gpu(fresh: Project) -> None:
    printed = fresh.snakemake("doctor").stdout
    assert "This machine can profile with: torch (on the CPU)." in printed
    assert re.search(r"^--  ncu +not on PATH$", printed, re.MULTILINE)


@pytest.mark.slow
def test_metrics_without_ncu_says_so_in_one_line(fresh: Project) -> None:
    run = fresh.snakemake("metrics", "--config", "match=dram", ok=False)
    assert run.returncode and "profzoo: ncu is not on PATH, so that its metrics cannot be listed: install" in run.stdout
    assert not (fresh.root / "results").exists()


@pytest.mark.slow
def test_doctor_where_counters_are_restricted(fresh: Project) -> None:
    fresh.path, fresh.variables = (STANDINS,), {"STANDIN_NCU": "permission"}
    printed = fresh.snakemake("doctor").stdout
    assert re.search(r"^ok  GPU +NVIDIA H200, 143771 MiB$", printed, re.MULTILINE)
    assert re.search(r"^--  counters +not readable", printed, re.MULTILINE)


def test_clean_removes_exactly_what_was_made(built: Project) -> None:
    own = {"notes.txt", "lstm/mine.csv", "tables/own.xlsx", "lstm/train.notes.txt", "figures/step_time.eps"}
    for path in own:
        built.write(f"results/{path}", "the user's own")
    built.snakemake("clean")
    left = {str(path.relative_to(built.root / "results")) for path in (built.root / "results").rglob("*")}
    assert left == own | {"lstm", "tables", "figures"}


@pytest.mark.slow
def test_clean_knows_what_other_command_lines_made_and_no_more(built: Project) -> None:
    own = {"mystuff/run1.nsys/precious.csv", "archive/2024.old.ncu-ranks/notes.txt", "peaks/mygpu.csv"}
    own |= {"unet/train.nsys.csv", "logs/old/train.time.log"}
    for path in own:
        (built.root / "results" / path).parent.mkdir(parents=True, exist_ok=True)
        built.write(f"results/{path}", "the user's own")
    built.write("mine.py", example())
    built.snakemake(
        "results/mine@odd/train.time.csv", "--config", "models={mine: {module: mine}}", "variants={odd: {batch: 3}}"
    )
    # A job that fails leaves its log.
    built.write("mine.py", example().replace("nn.ReLU()", "nn.Nothing()"))
    failing = ["results/mine/train.time.csv", "--config", "models={mine: {module: mine}}"]
    built.snakemake(*failing, ok=False)
    assert {"logs/mine/train.time.log", "benchmarks/mine@odd/train.time.tsv"} <= {
        str(path.relative_to(built.root / "results")) for path in (built.root / "results").rglob("*")
    }
    run = built.snakemake("clean")
    assert f"left {len(own)} that the workflow did not make" in run.stdout + run.stderr
    left = {path for path in (built.root / "results").rglob("*") if path.is_file()}
    assert {str(path.relative_to(built.root / "results")) for path in left} == own


@pytest.mark.slow
def test_clean_leaves_no_folder_and_no_source(built: Project) -> None:
    sources = built.files("workflow") | built.files("models")
    for _ in range(2):
        built.snakemake("clean")
        assert not (built.root / "results").exists()
    assert built.files("workflow") | built.files("models") == sources


@pytest.mark.slow
def test_clean_after_ncu(ncu_built: Project) -> None:
    ncu_built.snakemake("clean")
    assert not (ncu_built.root / "results").exists()


@pytest.mark.slow
def test_clean_of_results_elsewhere(fresh: Project) -> None:
    """Named by an absolute path, and by one that leads there through a link."""
    elsewhere = fresh.root.parent / "elsewhere"
    (elsewhere / "in").mkdir(parents=True)
    (fresh.root / "link").symlink_to(elsewhere / "in")
    for made in (f"{elsewhere}/results", "link/../results"):
        fresh.snakemake("doctor", "--config", f"pathvars={{results: {made}}}")
        assert (elsewhere / "results/doctor.txt").exists() and not (fresh.root / "results").exists()
        fresh.snakemake("clean", "--config", f"pathvars={{results: {elsewhere}/results}}")
        assert not (elsewhere / "results").exists(), made


def example() -> str:
    """The model of one's own in the README."""
    readme = (CHECKOUT / "README.md").read_text()
    return readme.partition("```python\n")[2].partition("```")[0]


@pytest.mark.slow
def test_a_model_of_ones_own_is_a_file(fresh: Project) -> None:
    assert 0 < len([line for line in example().splitlines() if line]) <= 10
    fresh.write("models/mine.py", example())
    fresh.snakemake("results/mine/train.torch.csv")
    assert {"mine/train.torch.csv", "mine/train.trace.json.gz"} <= fresh.files()
    assert "addmm" in fresh.read("results/mine/train.torch.csv")


@pytest.mark.slow
def test_a_model_of_ones_own_is_a_module(fresh: Project) -> None:
    (fresh.root / "my").mkdir()
    fresh.write("my/package.py", example())
    own = ["--config", "models={mine: {module: my.package, batch: 5}}", "tool=time"]
    fresh.draw_one()
    fresh.snakemake("all", *own)
    rows = list(csv.DictReader(io.StringIO(fresh.read("results/tables/cells.csv"))))
    assert [(row["model"], row["phase"], row["batch"]) for row in rows] == [
        ("mine", "train", "5"),
        ("mine", "inference", "5"),
    ]
    fresh.write("my/package.py", example().replace("256", "128"))
    assert {"time_training", "time_inference"} <= rules(fresh.dry("all", *own))


@pytest.mark.slow
def test_peaks_of_this_machine(fresh: Project) -> None:
    fresh.snakemake("results/peaks/here.csv")
    rows = list(csv.DictReader(io.StringIO(fresh.read("results/peaks/here.csv"))))
    assert {row["peak"] for row in rows} >= {"dram", "l2", "fp32"} and fresh.files() == {
        "peaks/here.csv",
        "peaks/here.csv.json",
    }


@pytest.mark.slow
def test_snakemake_called_by_its_path_runs_jobs_by_its_own_python(fresh: Project, recorded: Path) -> None:
    """Without an active virtual environment the first `python` in PATH is another, or there is none."""
    other = fresh.root.parent / "other"
    other.mkdir()
    (other / "python").write_text("#!/bin/sh\necho 'another python' >&2\nexit 1\n")
    (other / "python").chmod(0o755)
    fresh.variables, fresh.recording = {"PATH": f"{other}:/usr/bin:/bin"}, recorded
    fresh.snakemake("results/lstm/train.time.csv")
    assert "lstm/train.time.csv" in fresh.files()


def variable(page: str, name: str) -> Any:
    """What the page's script of that name assigns to the variable of that name."""
    script = page.partition(f'<script id="{name}">')[2]
    return json.JSONDecoder().raw_decode(script.partition(f"var {name} = ")[2])[0]


@pytest.mark.slow
def test_it_carries_tables_figures_and_the_page(built: Project) -> None:
    built.snakemake("--report", "out.zip")
    with zipfile.ZipFile(built.root / "out.zip") as archive:
        page = archive.read("out/report.html").decode()
        kept = {name.rpartition("/")[2] for name in archive.namelist()}
    results, categories = variable(page, "results"), variable(page, "categories")
    shown = {name: sorted(path for part in parts.values() for path in part) for name, parts in categories.items()}
    expected = {"Report": ["report.html"], "Tables": [], "Figures": []}
    expected["Tables"] = [f"tables/{path.name}" for path in built.root.glob("results/tables/*.csv")]
    expected["Figures"] = [f"figures/{path.name}" for path in built.root.glob("results/figures/*.svg")]
    assert shown == {name: sorted(f"results/{path}" for path in paths) for name, paths in expected.items()}
    assert results["results/tables/steps.csv"]["labels"] == {"table": "steps", "a row": "a cell and process"}
    assert all(one["labels"] and one["caption"] for one in results.values())
    assert {"cells.csv", "verdicts.csv", "step_time.svg"} <= kept


HIDING = ("profile", "queue", "signal", "statistics", "random", "code")
CONFIG = """\
tool: torch
models: {mine: {module: mine, sequence_length: 8}}
phases: [train]
device: cpu
warmup: 1
time: {window: 2}
torch: {window: 1}
"""


@pytest.mark.slow
def test_jobs_go_by_pythons_own_modules(fresh: Project) -> None:
    for name in HIDING:
        fresh.write(f"{name}.py", "raise RuntimeError('hides a module of Python')\n")
    fresh.write("mine.py", Path(lstm.__file__).read_text())
    fresh.write("tiny.yaml", CONFIG)
    targets = ["results/mine/train.time.csv", "results/mine/train.torch.csv"]
    command = [str(Path(sys.executable).with_name("snakemake")), *targets, "--configfile", "tiny.yaml", "--cores", "1"]
    done = subprocess.run(
        command, cwd=fresh.root, env=fresh.environment(), capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all((fresh.root / target).exists() for target in targets)
