"""Records what a batch system says about jobs that it refuses or ends, and explains it in one line."""

import re
from collections.abc import Mapping
from typing import Any

# Messages of Snakemake's Slurm plugin: sbatch refused a job, or a job ended in a state.
REFUSED = re.compile(r"SLURM sbatch failed\. The error message was '(.*?)'\.$", re.DOTALL | re.MULTILINE)
ENDED = re.compile(r"SLURM status is: '(\w+)")
SAID_BY = re.compile(r"^(sbatch|srun): (error: )?", re.MULTILINE)
ADVICE = (
    (r"partition", "`sinfo` lists the partitions; slurm_partition names one, under default-resources or set-resources"),
    (r"[Mm]emory", "ask for less, by --set-resources {rule}:mem_mb=MB, or for another partition by slurm_partition"),
    (r"time limit", "ask for less, by --set-resources {rule}:runtime=MINUTES, or for another partition"),
    (r"account", "slurm_account names one, under default-resources or set-resources"),
    (r"node configuration|[Nn]ode count|processors|CPU count|gres", "no node there has so much: {asked}"),
)
# States that the job's own log does not mention.
STATES: Mapping[str, str] = {
    "TIMEOUT": "at its limit of {runtime} minutes: give it more by --set-resources {rule}:runtime={more_runtime}",
    "DEADLINE": "at its deadline",
    "OUT_OF_MEMORY": "because it took more than {mem_mb} MB: "
    "give it more by --set-resources {rule}:mem_mb={more_mem_mb}",
    "CANCELLED": "because it was cancelled (scancel)",
    "PREEMPTED": "for another job: run snakemake again, or name another partition",
    "NODE_FAIL": "because its node failed: run snakemake again",
    "BOOT_FAIL": "because its node did not start: run snakemake again",
}


class BatchMessages:
    """Messages of a batch system, by Snakemake's job numbers."""

    def __init__(self) -> None:
        """Start without messages."""
        self.said: dict[int, str] = {}

    def heed(self, executor: Any) -> None:
        """Record this executor's messages on failing jobs from now on; Snakemake drops those of grouped jobs."""
        tell = executor.print_job_error

        def noted(job_info: Any, msg: str | None = None, **more: Any) -> None:
            job = job_info.job
            for one in job.jobs if job.is_group() else [job]:
                if line := explain_failure(msg or "", one.rule.name, dict(job.resources.items())):
                    self.said[one.jobid] = line
            tell(job_info, msg, **more)

        executor.print_job_error = noted


def explain_failure(message: str, rule: str, asked: Mapping[str, object]) -> str:
    """Explain in one line why a batch system did not run a job to its end; empty if the job's own log explains it.

    rule: rule of the job; asked: resources that the job requested.

    >>> explain_failure("SLURM-job '7' failed, SLURM status is: 'TIMEOUT'.", "profile_nsys", {"runtime": 30})
    'Slurm ended it at its limit of 30 minutes: give it more by --set-resources profile_nsys:runtime=60'
    >>> explain_failure("SLURM-job '7' failed, SLURM status is: 'FAILED'.", "profile_nsys", {})
    ''
    """
    if refused := REFUSED.search(message):
        lines = [line.strip() for line in SAID_BY.sub("", refused[1]).splitlines() if line.strip()]
        line = "; ".join(dict.fromkeys(lines))
        keys = ("gpu", "gpu_model", "gres", "nodes", "mem_mb", "runtime")
        told = ", ".join(f"{key}={asked[key]}" for key in keys if asked.get(key))
        advice = next((words for pattern, words in ADVICE if re.search(pattern, line)), "")
        return f"Slurm refused it: {line}" + (f": {advice.format(rule=rule, asked=told)}" if advice else "")
    ended = ENDED.search(message)
    if not ended or ended[1] not in STATES:
        return ""
    numbers = {key: asked.get(key) for key in ("runtime", "mem_mb")}
    more = {f"more_{key}": 2 * value if isinstance(value, int) else "MORE" for key, value in numbers.items()}
    return f"Slurm ended it {STATES[ended[1]].format(rule=rule, **numbers, **more)}"
