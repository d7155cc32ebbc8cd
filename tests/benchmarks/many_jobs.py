"""A thousand jobs: what planning them costs, and what a real Slurm on loopback makes of them.

    python -m tests.benchmarks.many_jobs plan [ROUNDS]
    python -m tests.benchmarks.many_jobs slurm [--variants N] [--empty] [--plain] [--keep FILE] [SNAKEMAKE'S OPTIONS]

`plan` prints wall time and peak memory of dry runs of growing size, medians: a model, the whole zoo, both phases, every
tool, then with variants up to 1,000 cells, then with section sets as targets of their own.

`slurm` takes the whole zoo with so many variants under ncu, which two section sets, and torch.profiler through
tests/workflow/loopback.py by profiles/slurm. ncu and nvidia-smi are the stand-ins of the tests, and `python -m
models.run` is a stand-in as well: it imports no torch and leaves recordings, since a machine that runs this has neither
a GPU nor the hours. All else is real: each job starts snakemake twice, as on a cluster, and exports what it "collected".
With --empty the jobs' steps are stand-ins too, which only leave the files that snakemake expects: what remains is the
pace of the process on the login node and of Slurm. --plain leaves out the grouping of short jobs, --keep keeps what
snakemake prints. Of the profile it changes what jobs ask for, so that the one small node runs one for each pretended GPU.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import psutil

from profzoo.cell import registry
from tests.workflow import loopback
from tests.workflow.project import CHECKOUT, STANDINS, Project, copy, heed_interrupts

OPTIONS = ("channels_last", "deterministic", "compile")
ALONE = ("", "@bf16", "@compile", "@fp16", "@tf32", "@channels_last", "@deterministic")
# Behind those alone, what goes together; 24 of them make a thousand cells of the zoo.
TOGETHER = (
    f"@{'+'.join([precision, *chosen])}"
    for count in (1, 2, 3)
    for chosen in itertools.combinations(OPTIONS, count)
    for precision in ("bf16", "fp16", "tf32")
)
VARIANTS = (*ALONE, *TOGETHER)
SETS = ("roofline", "survey", "memory", "compute", "stalls")
# A line of a plan: what is done, and by how many jobs. Of these, files are made from what the others collect.
JOBS = re.compile(r"^  (\w.*?) +([\d,]+) jobs? ", re.MULTILINE)
MADE = {"exports", "tables", "figures", "pages"}
# Longer than this, something is wrong.
LIMIT_S = 3600
CONFIG = """\
tool: ncu,torch
time: {window: 2}
torch: {window: 1}
"""
RUN = '''\
"""Stand-in for `python -m models.run`: leaves recorded files where they are asked for."""
import gzip, json, sys
from pathlib import Path

words = dict(zip(sys.argv, sys.argv[1:]))
data = Path("recorded")
facts = {"device": "stand-in", "device_type": "cuda", "python": "3", "torch": "0", "cuda": None, "cudnn": None,
         "parameters": 1, "batch": 1, "steps": 2, "items": 2, "loss": 1.0, "step_ns": 1e6, "window_wall_ns": 2000000,
         "peak_memory_bytes": 1, "peak_rss_bytes": 1}
steps = "step,wall_ns,gpu_ns,items,peak_memory_bytes\\n0,1000000,,1,1\\n1,1000000,1000000,1,1\\n"
for option, content in {"--facts": json.dumps(facts), "--steps": steps, "--save": "weights"}.items():
    if option in words:
        Path(words[option]).write_text(content)
if "--trace" in words:
    Path(words["--trace"]).write_bytes((data / "train.trace.json.gz").read_bytes())
    Path(words["--operators"]).write_bytes(gzip.decompress((data / "train.torch-operators.csv.gz").read_bytes()))
'''
# What a Slurm job runs in place of snakemake: it leaves what the dry run said that the job makes.
EMPTY = """\
#!/usr/bin/python3
import itertools, json, os, shlex, sys

jobs = json.load(open({listed!r}))
words = shlex.split(sys.argv[1])
targets = words[words.index("--target-jobs") + 1 :]
for name in itertools.takewhile(lambda word: not word.startswith("--"), targets):
    rule, _, wildcards = name.partition(":")
    for path in jobs[":".join([rule, *sorted(filter(None, wildcards.split(",")))])]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").write("stand-in")
"""
SBATCH = """\
#!/usr/bin/python3
import os, shlex, sys

words = sys.argv[1:]
wrapped = next((index for index, word in enumerate(words) if word.startswith("--wrap=")), None)
if wrapped is not None:
    words[wrapped] = "--wrap={node} " + shlex.quote(words[wrapped][7:])
os.execv({real!r}, [{real!r}, *words])
"""


def cells(variants: int) -> str:
    """The value of `models` for the whole zoo, once without and then with each of the variants; a model for 0."""
    return ",".join(f"all{name}" for name in VARIANTS[:variants]) or "lstm"


def extra(models: Sequence[str], variants: int, sets: Sequence[str]) -> list[str]:
    """Targets besides `all`: these section sets of every cell."""
    named = [f"{model}{variant}" for model in models for variant in VARIANTS[:variants]]
    return [
        f"results/{one}/{phase}.ncu.{name}.csv" for one in named for phase in ("train", "inference") for name in sets
    ]


def zoo() -> list[str]:
    """Names of the zoo's models."""
    return list(registry.shipped_models())


def plan(rounds: int) -> None:
    """Print what dry runs of growing size cost."""
    sizes = [(0, ()), (1, ()), (2, ()), (7, ()), (24, ()), (2, SETS), (4, SETS)]
    with tempfile.TemporaryDirectory() as folder:
        project = copy(Path(folder) / "project")
        print("variants  sets  jobs  collecting  wall s  CPU s  peak MiB")
        for variants, sets in sizes:
            words = ["snakemake", "-n", "--config", f"models={cells(variants)}", "--"]
            words += ["all", *extra(zoo(), variants, sets)]
            rows = []
            for _ in range(rounds):
                seconds, cpu, memory, printed = measured(words, project.root)
                rows.append((seconds, cpu, memory))
            jobs = [(what, int(count.replace(",", ""))) for what, count in JOBS.findall(printed)]
            collecting = sum(count for what, count in jobs if what not in MADE)
            wall, used, peak = (statistics.median(column) for column in zip(*rows, strict=True))
            print(f"{variants:8} {len(sets):5} {sum(count for _, count in jobs):5} {collecting:11} {wall:7.2f} {used:6.2f} "
                  f"{peak / 2**20:9.0f}", flush=True)  # fmt: skip


def measured(words: Sequence[str], folder: Path) -> tuple[float, float, int, str]:
    """Wall and CPU seconds, peak bytes and output of a command that must succeed."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(words, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        printed = out.read()
    if process.returncode:
        raise SystemExit(printed)
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, printed


def slurm(options: argparse.Namespace) -> None:
    """Take the jobs through Slurm and print what it took."""
    if missing := loopback.missing():
        raise SystemExit(f"no Slurm here: {', '.join(missing)} missing")
    # Pretended GPUs: as many as the machine can feed, or so many that they do not limit what only leaves files.
    loopback.GPUS = 16 if options.empty else 2
    # Not the usual temporary folder: the path of a socket may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="profzoo-") as folder, loopback.running(Path(folder) / "s") as cluster:
        project = site(Path(folder), cluster, options)
        words = ["all", *extra(zoo(), options.variants, ["roofline"]), "--config", f"models={cells(options.variants)}"]
        if options.empty:
            empty(project, cluster, words)
        command = [sys.executable, "-m", "snakemake", *words, "--configfile", "tiny.yaml"]
        watch([*command, "--workflow-profile", "profiles/slurm", *options.snakemake], project, cluster, options.keep)


def site(folder: Path, cluster: loopback.Slurm, options: argparse.Namespace) -> Project:
    """A copy of the project on the login node of that cluster, with the stand-ins."""
    made = copy(folder / "project", CONFIG)
    path = f"{cluster.folder / 'bin'}"
    project = Project(made.root, (Path(path), STANDINS), {"SLURM_CONF": cluster.environment["SLURM_CONF"]})
    project.variables |= {"PATH": f"{path}:{project.environment()['PATH']}:{loopback.SEARCH}"}
    project.write("profzoo/harness/run.py", RUN)
    (made.root / "recorded").symlink_to(CHECKOUT / "tests" / "data" / "torch")
    profile = project.read("profiles/slurm/config.yaml")
    # What a job asks for must not keep the one small node from running as many as it has pretended GPUs.
    profile = re.sub(r"mem_mb: \d+", "mem_mb: 1000", re.sub(r"cpus_per_task: \d+", "cpus_per_task: 1", profile))
    if options.plain:
        profile = re.sub(r"^(groups|group-components):\n(?:  .*\n)+", "", profile, flags=re.MULTILINE)
    project.write("profiles/slurm/config.yaml", profile)
    return project


def empty(project: Project, cluster: loopback.Slurm, words: Sequence[str]) -> None:
    """Put stand-ins for what Slurm jobs run beside an sbatch that hands them out."""
    printed = project.snakemake(*words, "--dry-run").stdout
    makes = {}
    for block in re.split(r"\n(?=(?:local)?rule \w+:\n)", printed)[1:]:
        lines = dict(re.findall(r"^    (\w+): (.*)$", block, re.MULTILINE))
        wildcards = sorted(filter(None, lines.get("wildcards", "").split(", ")))
        name = ":".join([block.split(" ", 1)[1].split(":")[0], *wildcards])
        files = [lines[key].split(", ") for key in ("output", "log", "benchmark") if key in lines]
        makes[name] = [file for listed in files for file in listed]
    listed, node = cluster.folder / "jobs.json", cluster.folder / "node"
    listed.write_text(json.dumps(makes))
    node.write_text(EMPTY.format(listed=str(listed)))
    real = subprocess.run(["which", "sbatch"], capture_output=True, text=True, check=True).stdout.strip()
    sbatch = cluster.folder / "bin" / "sbatch"
    sbatch.write_text(SBATCH.format(node=node, real=real))
    for program in (node, sbatch):
        program.chmod(0o755)


def watch(command: Sequence[str], project: Project, cluster: loopback.Slurm, keep: Path | None) -> None:
    """Run snakemake and print what it, and Slurm, took."""
    began, own = time.monotonic(), (0.0, 0.0)
    with tempfile.TemporaryFile("w+") as out:
        process = psutil.Popen(
            command, cwd=project.root, env=project.environment(), stdout=out, stderr=subprocess.STDOUT,
            preexec_fn=heed_interrupts,
        )  # fmt: skip
        peak = 0
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                own = (times.user + times.system, times.children_user + times.children_system)
                peak = max(peak, process.memory_info().rss)
            time.sleep(0.2)
            if time.monotonic() - began > LIMIT_S:
                process.send_signal(signal.SIGINT)
                process.wait(60)
        wall = time.monotonic() - began
        out.seek(0)
        printed = out.read()
    if keep:
        keep.write_text(printed)
    done = re.findall(r"^(\d+) of (\d+) steps \(\d+%\) done", printed, re.MULTILINE)
    jobs = queue(cluster)
    waits = [start - submit for submit, start, _ in jobs]
    runs = [end - start for _, start, end in jobs]
    seconds = [submit for submit, _, _ in jobs]
    if process.returncode or not jobs:
        logs = (path.read_text() for path in project.root.glob(".snakemake/slurm_logs/**/*.log") if path.stat().st_size)
        said = f"{printed[-2000:]}\n{next(logs, '')[-2000:]}"
        print(f"snakemake ended with exit code {process.returncode}:\n{said}")
        if not jobs:
            return
    finished = int(done[-1][0]) if done else 0
    print(f"{finished} of {done[-1][1] if done else '?'} jobs in {len(jobs)} Slurm jobs, {wall:.0f} s, "
          f"{finished / wall:.2f} jobs/s, {len(jobs) / wall:.2f} Slurm jobs/s")  # fmt: skip
    print(f"snakemake: {own[0]:.0f} s CPU of its own, {own[1]:.0f} s of sbatch and squeue, peak {peak / 2**20:.0f} MiB")
    print(f"first to last submission {max(seconds) - min(seconds):.0f} s; from submission to start, median "
          f"{statistics.median(waits):.0f} s, most {max(waits):.0f} s; a Slurm job ran {statistics.median(runs):.0f} s "
          f"(median), {sum(runs):.0f} s in all")  # fmt: skip
    print(f"scheduler rounds: {printed.count('Select jobs to execute')}")


def queue(cluster: loopback.Slurm) -> list[tuple[float, float, float]]:
    """When each job was submitted, started and ended, by Slurm's own clock of whole seconds."""
    rows = cluster.ask("squeue", "-h", "-t", "all", "-o", "%V %S %e").splitlines()
    times = [[datetime.fromisoformat(word).timestamp() for word in row.split()] for row in rows if "N/A" not in row]
    return [(submit, start, end) for submit, start, end in times]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.many_jobs", description=__doc__)
    kinds = parser.add_subparsers(required=True)
    planning = kinds.add_parser("plan")
    planning.add_argument("rounds", type=int, nargs="?", default=3)
    planning.set_defaults(do=lambda options: plan(options.rounds))
    through = kinds.add_parser("slurm")
    through.add_argument("--variants", type=int, default=2)
    through.add_argument("--empty", action="store_true")
    through.add_argument("--plain", action="store_true")
    through.add_argument("--keep", type=Path, help="file for what snakemake prints")
    through.set_defaults(do=slurm)
    options, options_of_snakemake = parser.parse_known_args(arguments)
    options.snakemake = options_of_snakemake
    options.do(options)


if __name__ == "__main__":
    main()
