"""A temporary copy of the project in which tests run snakemake, and what they ask of it."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from stat import S_IFMT, S_ISDIR

from profzoo.collect import environment
from profzoo.records import import_graph
from tests.workflow import forked

CHECKOUT = Path(__file__).parents[2]
STANDINS = CHECKOUT / "tests" / "tools" / "standins"
COPIED = ("Snakefile", "workflow", "profzoo", "models", "config", "profiles")
PROFILERS = ("ncu", "nsys", "nvidia-smi")
COLLECTING = {"train_weights", "time_training", "time_inference", "profile_ncu", "profile_nsys", "profile_torch"}
# Waiting threads of a cell would otherwise spin on cores that other tests use, for up to half of the cell's time.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
TINY = """\
tool: torch
models: [lstm, unet]
device: cpu
warmup: 1
time: {window: 2}
torch: {window: 1}
nsys: {window: 2}
settings:
  lstm: {sequence_length: 8}
  unet: {size: 32, batch: 1}
"""
# A smaller U-Net, with weights of 2 MB instead of 124: they are often copied, compared with their records and trained.
NARROWER = {
    "WIDTHS = (64, 128, 256, 512, 1024)": "WIDTHS = (8, 16, 32, 64, 128)",
    "PARAMETERS = 31_030_658": "PARAMETERS = 485_682",
}
ONE_MODEL = TINY.replace("models: [lstm, unet]", "models: [lstm]")


@dataclass(frozen=True)
class Job:
    """A job of a dry run; rule: for a figure, `draw_` and the figure's name; model: empty if the rule has none."""

    rule: str
    model: str
    reason: str


@dataclass
class Project:
    """A copy of the project.

    path: folders at the beginning of PATH; the other folders contain no profiler. recording: results of a real run,
    which cells copy instead of running, or None. forks_cells: whether cells run in forks of a process that has imported
    torch; False for tests of how processes end.
    """

    root: Path
    path: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    recording: Path | None = None
    forks_cells: bool = True

    def snakemake(self, *words: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        """Run snakemake with the tiny configuration; ok: whether it must succeed."""
        configured = [] if "--list" in words else ["--configfile", "tiny.yaml"]
        if "--dry-run" in words:
            # With this option Snakemake prints each job itself.
            configured.append("--printshellcmds")
        # Targets come first, because some options take any number of words.
        run = forked.snakemake([*words, *configured], self.root, self.environment())
        if ok:
            assert run.returncode == 0, run.stdout + run.stderr
        return run

    def begun(self, *words: str) -> subprocess.Popen[str]:
        """Start Snakemake in the background, in a process group of its own, as a terminal does."""
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *words], cwd=self.root, env=self.environment(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0,
            preexec_fn=heed_interrupts,
        )  # fmt: skip

    def ended(self, *words: str) -> tuple[int, str]:
        """Run Snakemake as `begun` does, and return its exit code and output."""
        return finished(self.begun(*words))

    def dry(self, *words: str) -> list[Job]:
        """Return the jobs that snakemake would run."""
        return list_jobs(self.snakemake(*words, "--dry-run").stdout)

    def environment(self) -> dict[str, str]:
        """Return an environment without a GPU, and with profilers in `path` only; runs write only into the copy."""
        home = self.root.parent / "home"
        home.mkdir(exist_ok=True)
        own = {
            "PATH": os.pathsep.join(map(str, [*self.path, Path(sys.executable).parent, *self._path()])),
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_CONFIG_HOME": str(home / "config"),
            # The GPU that the stand-in for nvidia-smi reports; CUDA finds no GPU of this name.
            "CUDA_VISIBLE_DEVICES": "GPU-00000000-0000-0000-0000-000000000000",
            **WAITING,
        }
        # With bytecode, the many processes need not compile the same modules. Other tests of this process may have set
        # variables that change measurements.
        without = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", *environment.measurement_variables()}
        found = {key: value for key, value in os.environ.items() if key not in without} | own | dict(self.variables)
        # The CPU replaces the GPU that the stand-in for nvidia-smi reports.
        standin = STANDINS / "gpu" if STANDINS in self.path else None
        if self.recording:
            standin = self._standin(home, found.pop("PYTHON_PAUSE", ""))
        folders = [self._forks(home, found)] if self.forks_cells else []
        if standin:
            folders.append(standin)
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [*map(str, folders), found.get("PYTHONPATH")]))
        return found if found["PYTHONPATH"] else {key: found[key] for key in found if key != "PYTHONPATH"}

    def _forks(self, home: Path, variables: Mapping[str, str]) -> Path:
        """Return the folder of a module that has cells forked; a file beside it names the process that forks."""
        # These are the variables that a job adds for its cell.
        gpus = int(any((folder / "nvidia-smi").exists() for folder in self.path))
        started = {"LC_ALL": "C", "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        started |= environment.thread_variables(len(os.sched_getaffinity(0)), gpus, 1)
        told = {"socket": forked.cells({**variables, **started}), "client": str(CHECKOUT / "profzoo" / "machine")}
        return _written(
            home / "forked", (STANDINS / "forked" / "sitecustomize.py").read_text(), "server.json", json.dumps(told)
        )

    def _standin(self, home: Path, pause: str) -> Path:
        """Return the folder of a stand-in for cells that copies recorded results; a file beside it configures it."""
        told = json.dumps({"results": str(self.recording), "pause": pause})
        return _written(
            home / "recorded", (STANDINS / "recorded" / "sitecustomize.py").read_text(), "recording.json", told
        )

    def files(self, under: str = "results") -> set[str]:
        """Return the relative paths of all files under results/, without logs, benchmarks and records."""
        root = self.root / under
        paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        return {
            str(path) for path in paths if path.parts[0] not in ("logs", "benchmarks") and ".records" not in path.parts
        }

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def write(self, path: str, text: str) -> None:
        (self.root / path).write_text(text)

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace a text in a file; the file must contain it."""
        text = self.read(path)
        assert old in text
        self.write(path, text.replace(old, new, 1))

    def draw_one(self) -> None:
        """Remove all figures but one, for tests of other parts: a figure takes as long as the rest of the report."""
        for path in (self.root / "profzoo" / "figures").glob("*.py"):
            if path.stem != "step_time" and "def draw(" in path.read_text():
                path.unlink()

    def _path(self) -> Iterable[Path]:
        """Yield the folders of PATH; a folder with a profiler is replaced by one with links to its other files."""
        for number, folder in enumerate(map(Path, os.environ["PATH"].split(os.pathsep))):
            if not any((folder / name).exists() for name in PROFILERS):
                yield folder
                continue
            mirror = self.root.parent / f"path{number}"
            if not mirror.exists():
                mirror.mkdir()
                for file in folder.iterdir():
                    if file.name not in PROFILERS:
                        (mirror / file.name).symlink_to(file)
            yield mirror


def _written(folder: Path, module: str, name: str, told: str) -> Path:
    """Make a folder for PYTHONPATH: a module that Python runs as it starts, and a file that configures it."""
    folder.mkdir(exist_ok=True)
    for file, text in {"sitecustomize.py": module, name: told}.items():
        # The file is replaced as a whole, because a job may be reading it.
        (folder / f"{file}.new").write_text(text)
        (folder / f"{file}.new").replace(folder / file)
    return folder


def use_nsys(project: Project, folder: Path) -> None:
    """Give a copy the real nsys of a folder and a package nvtx that works with it, and no other profiler."""
    tools = project.root.parent / "tools"
    tools.mkdir()
    (tools / "nsys").symlink_to(folder / "nsys")
    project.path = (tools,)
    if (folder.parent / "python").is_dir():
        project.variables = {"PYTHONPATH": str(folder.parent / "python")}


def copy(root: Path, config: str = TINY) -> Project:
    """Copy the checkout's sources to root and return the copy, in which nothing is made yet."""
    root.mkdir(parents=True)
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            # With bytecode, which is that of the same sources.
            shutil.copytree(source, root / name)
        else:
            shutil.copy2(source, root / name)
    for wide, narrow in NARROWER.items():
        Project(root).replace("models/unet.py", wide, narrow)
    (root / "tiny.yaml").write_text(config)
    # An earlier run leaves this file; without it, the first run in each copy would parse all sources.
    (kept := root / import_graph.KEPT).parent.mkdir(parents=True)
    kept.write_text(_parsed())
    return Project(root)


@cache
def _parsed() -> str:
    """Return the text in which a run keeps the import statements of the sources."""
    for path in (*CHECKOUT.glob("profzoo/**/*.py"), *CHECKOUT.glob("workflow/scripts/*.py")):
        import_graph.files_of(str(path.relative_to(CHECKOUT)))
    return import_graph.format_statements()


def heed_interrupts() -> None:
    """Make this process react to signals that processes in the background or under nohup ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def finished(process: subprocess.Popen[str], seconds: float = 240) -> tuple[int, str]:
    """Wait for a process and return exit code and output; a hanging process is killed and the test fails."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, output


class Built:
    """A project that is built once; every test gets it in its original state, at the same place."""

    def __init__(self, project: Project, *words: str, kept: Path | None = None) -> None:
        """Build the project; words: targets and options of snakemake; kept: folder of the built state, for all tests.

        What Snakemake prints is in the file `said` beside it.
        """
        self.project = project
        self.kept = kept or project.root.parent / "kept"
        self.said = self.kept.with_suffix(".said")
        # What was there when the project was last restored.
        self.left: dict[str, tuple[int, int, int]] = {}
        with locked(self.kept.with_suffix(".lock")):
            if not self.kept.exists():
                run = self.project.snakemake(*words)
                self.said.write_text(run.stdout + run.stderr)
                # The folder gets its name when it is complete.
                shutil.rmtree(partial := self.kept.with_suffix(".partial"), ignore_errors=True)
                self._copy(project.root, partial)
                partial.rename(self.kept)

    def restored(self) -> Project:
        """Return the project in the state in which it was built; only what was changed since the last time is copied."""
        root = self.project.root
        if not self.left or not root.exists():
            shutil.rmtree(root, ignore_errors=True)
            self._copy(self.kept, root)
        else:
            self._undo(root)
        self.left = _found(root)
        self.project.recording = None
        return self.project

    def _undo(self, root: Path) -> None:
        known, there = _found(self.kept), _found(root)
        for name in sorted(there, reverse=True):
            # The time of a change of the file itself cannot be set, so that it tells every change.
            if name not in known or there[name] != self.left[name]:
                (root / name).rmdir() if S_ISDIR(there.pop(name)[0]) else (root / name).unlink()
        for name, (kind, *_) in known.items():
            if name not in there and S_ISDIR(kind):
                (root / name).mkdir()
            elif name not in there:
                shutil.copy2(self.kept / name, root / name, follow_symlinks=False)
        for name, (kind, *_) in reversed(known.items()):
            if S_ISDIR(kind):
                shutil.copystat(self.kept / name, root / name)

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def _found(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return all files and folders, in order: the kind, and of files the number and the time of their last change."""
    found = {}
    for path in sorted(root.rglob("*")):
        stat = path.lstat()
        own = (0, 0) if S_ISDIR(stat.st_mode) else (stat.st_ino, stat.st_ctime_ns)
        found[str(path.relative_to(root))] = (S_IFMT(stat.st_mode), *own)
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file while the body runs; other processes wait for it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def list_jobs(printed: str) -> list[Job]:
    """Return the jobs that a dry run printed."""
    jobs = []
    # Snakemake indents jobs of a group.
    for block in re.split(r"\n *(?=(?:local)?rule \w+:\n)", printed)[1:]:
        lines = dict(re.findall(r"^ {4,8}(\w+): (.*)$", block, re.MULTILINE))
        wildcards = dict(part.split("=") for part in lines.get("wildcards", "").split(", ") if part)
        rule = block.split(" ", 1)[1].split(":")[0]
        name = f"draw_{wildcards['figure']}" if rule == "draw_figure" else rule
        jobs.append(Job(name, wildcards.get("model", ""), lines["reason"]))
    assert jobs or "Nothing to be done" in printed, printed
    return [job for job in jobs if job.rule not in ("all", "figures", "report")]


def rules(jobs: Iterable[Job]) -> set[str]:
    return {job.rule for job in jobs}


def models(jobs: Iterable[Job]) -> set[str]:
    return {job.model for job in jobs if job.model}


def said(run: subprocess.CompletedProcess[str]) -> list[str]:
    """Return profzoo's own lines about failed jobs, without lines about a CPU or about waiting for other tests."""
    lines = re.findall(r"^profzoo: (.*)$", run.stdout + run.stderr, re.MULTILINE)
    return [line for line in lines if ": measured on the CPU: " not in line and not line.startswith("waiting for ")]
