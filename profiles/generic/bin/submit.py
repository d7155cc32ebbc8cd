#!/usr/bin/env python3
"""Submits Snakemake's job script to LSF or PBS Pro, whichever is here, and prints the job's id."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Where the queue leaves what a job prints and, for bin/status-pbs, how it ended; each job runs in the project's folder.
FOLDER = ".snakemake/generic"
IDS = {"bsub": r"Job <(\d+)> is submitted", "qsub": r"^(\d+\.\S+)$"}


@dataclass(frozen=True)
class Job:
    """What a job asks for; words: further words for bsub or qsub, chunk: for the chunk that PBS selects."""

    name: str
    cores: int
    mem_mb: int
    minutes: int
    gpus: int = 0
    gpu_model: str = ""
    queue: str = ""
    project: str = ""
    chunk: str = ""
    words: str = ""


def job_of(script: str) -> Job:
    """The needs of the job in Snakemake's script, which says them in its second line.

    Raises:
        ValueError: it does not.
    """
    line = re.search(r"^# properties = (\{.*\})$", script, re.MULTILINE)
    if not line:
        raise ValueError("the job script has no line with the job's properties")
    properties = json.loads(line[1])
    asked: Mapping[str, str | int] = properties["resources"]
    texts = {key: str(asked.get(key, "")) for key in ("gpu_model", "queue", "project", "chunk", "words")}
    return Job(
        name=properties.get("groupid") or properties["rule"],
        cores=int(asked.get("cpus_per_task", properties.get("threads", 1))),
        mem_mb=int(asked["mem_mb"]),
        minutes=int(asked["runtime"]),
        gpus=int(asked.get("gpu", 0)),
        **texts,
    )


def bsub_words(job: Job, folder: Path) -> list[str]:
    """LSF's command for a job, whose script it reads from its input."""
    words = ["bsub", "-J", job.name, "-o", f"{folder}/%J.log", "-n", str(job.cores), "-R", "span[hosts=1]"]
    words += ["-R", f"rusage[mem={job.mem_mb}MB]", "-M", f"{job.mem_mb}MB", "-W", str(job.minutes)]
    if job.gpus:
        words += ["-gpu", f"num={job.gpus}" + (f":gmodel={job.gpu_model}" if job.gpu_model else "")]
    words += ["-q", job.queue] if job.queue else []
    words += ["-P", job.project] if job.project else []
    return words + shlex.split(job.words)


def qsub_words(job: Job, folder: Path) -> list[str]:
    """PBS Pro's command for a job, whose script it reads from its input."""
    parts = ["select=1", f"ncpus={job.cores}", f"mem={job.mem_mb}mb"]
    parts += [f"ngpus={job.gpus}"] if job.gpus else []
    parts += [job.chunk] if job.chunk else []
    hours, minutes = divmod(job.minutes, 60)
    # Unlike LSF, PBS starts a job without the environment: its rules would not find python.
    words = ["qsub", "-V", "-N", job.name, "-j", "oe", "-o", f"{folder}/"]
    words += ["-l", ":".join(parts), "-l", f"walltime={hours:02}:{minutes:02}:00"]
    words += ["-q", job.queue] if job.queue else []
    words += ["-P", job.project] if job.project else []
    return words + shlex.split(job.words)


def with_exit_code(script: str, folder: Path) -> str:
    """The script, made to leave its exit code behind: a PBS without job history forgets a job that has ended."""
    first, rest = script.split("\n", 1)
    return f"{first}\ntrap 'echo $? > {shlex.quote(str(folder))}/\"$PBS_JOBID\".exit' EXIT\n{rest}"


def job_id(program: str, printed: str) -> str:
    """The id in what bsub or qsub printed, among whatever else a site lets them print.

    Raises:
        ValueError: there is none.
    """
    found = re.findall(IDS[program], printed, re.MULTILINE)
    if not found:
        raise ValueError(f"{program} printed no job id: {printed.strip() or 'nothing'}")
    return str(found[-1])


def submit(script: str, folder: Path) -> str:
    """Submit the script and return the job's id.

    Raises:
        ValueError: there is no queue here, or it did not take the job; the text says why.
    """
    program = next((name for name in IDS if shutil.which(name)), None)
    if not program:
        raise ValueError("neither bsub nor qsub in PATH: profiles/generic is for LSF and PBS Pro")
    job = job_of(script)
    if program == "bsub":
        words, text = bsub_words(job, folder), script
    else:
        words, text = qsub_words(job, folder), with_exit_code(script, folder)
    # What they say on stderr is shown as it is; it says more than an exit code.
    answer = subprocess.run(words, input=text, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode:
        raise ValueError(f"exit code {answer.returncode} of {shlex.join(words)} {answer.stdout.strip()}".rstrip())
    return job_id(program, answer.stdout)


def main(path: str) -> int:
    """Submit the job script at path; the exit code is that of the program."""
    folder = Path(FOLDER).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        print(submit(Path(path).read_text(), folder))
    except (OSError, KeyError, ValueError) as error:
        print(f"profzoo: not submitted: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
