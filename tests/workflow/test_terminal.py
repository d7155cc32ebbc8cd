"""What a run says in the terminal, by the real Snakemake: little, of what was measured, and nothing of its rules."""

import json
import re
import shutil

import pytest

from tests.workflow.project import Built, Project, rules
from tests.workflow.test_ncu import RANGED, traced

RULE = re.compile(r"^ *(?:checkpoint |rule |use rule \w+ as )(\w+)(?: with)?:", re.MULTILINE)
# What a screen holds.
SCREEN = 24


def test_a_run_says_what_it_measured(torch_build: Built) -> None:
    said = torch_build.said.read_text()
    lines = said.splitlines()
    assert not re.search("[\r\033]", said)
    plan = next(line for line in lines if line.startswith("4 cells, torch: about "))
    assert " on this CPU" in plan
    measured = [line for line in lines if re.search(r"  \d/8(  ~.* left)?$", line)]
    assert [line.rsplit("/8")[0][-1] for line in measured] == [*"12345678"]
    assert re.match(
        r"lstm train +torch +[\d.]+ \w+/step profiled  ",
        next(line for line in measured if re.match("lstm train .*torch", line)),
    )
    assert sum("samples/s" in line for line in measured) == 4
    # All are of the CPU.
    assert said.count(": measured on the CPU: ") == 1
    assert lines[-1] == "report  results/report.html"
    assert any(
        re.fullmatch(r"new +4 cells under torch and time; \d+ tables; \d+ figures; in .* s", line) for line in lines
    )
    assert not re.search(r"^(local)?rule |jobid|of \d+ steps \(|Select jobs|Elapsed", said, re.MULTILINE)


@pytest.mark.slow
def test_the_first_plan_of_a_cell_is_said_before_ncu_has_counted(counted: Project) -> None:
    """By what nsys and time say; what is made again with all measurements there says nothing of it."""
    traced(counted)
    counted.draw_one()
    shutil.rmtree(counted.root / "results")
    # The recorded trace is another program's than the one that ncu counts, so that each has a census of its own.
    asked = ["--config", *RANGED, "warmup=3", "ncu={set: roofline, census: ncu}"]
    lines = counted.snakemake("report", *asked).stderr.splitlines()
    (early,) = [place for place, line in enumerate(lines) if line.startswith("early ")]
    told = r"early   lstm train: graph=true.*, expected to run \d.* times as fast.*; counters may change it"
    assert re.match(told, lines[early])
    before, after = ("\n".join(part) for part in (lines[:early], lines[early:]))
    assert all(re.search(rf"^lstm train +{tool} ", before, re.M) for tool in ("time", "nsys"))
    assert "ncu roofline  190 launches" in after and re.search(r"^lstm train +ncu launch ", after, re.M)
    assert re.search(r"^gains   lstm train: ", after, re.M) and lines[-1] == "report  results/report.html"
    # Nothing needs the file, nor what it is made of besides.
    plans = counted.root / "results/lstm/train.first-plan.csv"
    plans.unlink()
    assert counted.dry("report", *asked) == []
    failed = {"failed": {"one": "out of memory"}, "words": {"one": ["graph=true"]}}
    counted.write("results/lstm/train.trials.csv.json", json.dumps(failed))
    assert rules(counted.dry("report", *asked)) <= {"tabulate_verdicts", "tabulate_plans", "write_report"}
    assert "plan_first" not in rules(counted.dry("results/lstm/train.replay.csv", "--forceall", *asked))
    again = counted.snakemake("report", "--forcerun", "derive_from_nsys", *asked).stderr
    assert plans.exists() and "counters may change it" not in again


@pytest.mark.slow
def test_nothing_to_be_done_is_said_and_snakemakes_own_messages_to_whoever_wants_them(built: Project) -> None:
    assert "Nothing to be done" in built.snakemake("report").stderr
    own = built.snakemake("report", "-p", "--forcerun", "write_report", "--config", "models=lstm").stderr
    assert "rule write_report:" in own and "1 of " in own and "report  results" not in own


def test_a_dry_run_of_the_zoo_fits_a_screen(untouched: Project) -> None:
    printed = untouched.snakemake("all", "-n", "--config", "models=classic", "tool=ncu,nsys,torch").stdout.splitlines()
    assert re.match(r"42 cells, 3 tools: about .* on this CPU, estimated from other machines$", printed[0])
    assert len(printed) < SCREEN
    for what in ("time", "ncu launch", "nsys", "torch", "exports", "tables", "figures", "pages"):
        assert any(re.match(rf"  {what} +\d+ jobs? +~\d", line) for line in printed), what
    assert printed[-1] == "  makes results/report.html"


@pytest.mark.slow
def test_mistakes_end_in_one_line(untouched: Project) -> None:
    wrong = {
        ("figuers",): "no rule or file 'figuers': did you mean 'figures'? `snakemake help` says what can be made",
        ("all", "--config", "tol=nsys"): "unknown key 'tol' (value 'nsys'): did you mean 'tool'?",
    }
    for words, line in wrong.items():
        said = untouched.snakemake(*words, ok=False).stderr.splitlines()
        assert [one for one in said if not one.startswith("Using workflow specific profile")] == [line]


def test_help_says_what_a_user_types_and_every_rule_what_it_does(fresh: Project) -> None:
    run = fresh.snakemake("help")
    assert "snakemake results/lstm/train.ncu.roofline.csv" in run.stdout
    assert not fresh.files()
    for rule in re.findall(r"^  snakemake (\w+) ", run.stdout, re.MULTILINE):
        assert f"rule {rule}:" in "".join(path.read_text() for path in (fresh.root / "workflow/rules").glob("*.smk"))
    listed = fresh.snakemake("--list").stdout
    typed, others = listed.split("\n\n")
    assert re.findall(r"^(\w+) \(", typed, re.MULTILINE) == [
        "all", "report", "figures", "perfetto", "compare", "trials", "doctor", "metrics", "status", "serve", "share",
        "verify", "clean", "help",
    ]  # fmt: skip
    assert "profile_ncu_sampled" in others
    sources = [fresh.root / "Snakefile", *(fresh.root / "workflow" / "rules").glob("*.smk")]
    named = {name for source in sources for name in RULE.findall(source.read_text())}
    rules = dict(re.findall(r"^(\w+) \((.+)\)$", listed, re.MULTILINE))
    assert set(rules) == named and all(words.endswith(".") for words in rules.values())
