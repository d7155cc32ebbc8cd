"""Starts the processes of a cell on several nodes: torchrun starts one for each GPU of a node.

In a Slurm job, srun starts torchrun on each node. In an indexed Job of Kubernetes, each pod is a node.

python -m profzoo.collect.multi_node NODES GPUS PROGRAM ...
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence

from profzoo.collect import pod_nodes
from profzoo.errors import CollectError
from profzoo.machine import external_programs

# The processes meet at a port of the first node; each job has a different port.
FIRST_PORT, PORTS = 20_000, 10_000


class LaunchError(RuntimeError):
    """The processes cannot be started; the message says why and what to do."""


def srun_words(nodes: int, gpus: int, program: Sequence[str], job: str, address: str) -> list[str]:
    """Build the command that starts all processes of a Slurm job; address: address of the job's first node."""
    srun = ["srun", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    meeting = f"--rdzv-endpoint={address}:{FIRST_PORT + int(job) % PORTS}"
    torchrun = ["python", "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={gpus}"]
    return [*srun, *torchrun, "--rdzv-backend=c10d", f"--rdzv-id={job}", meeting, "--no-python", *program]


def first_node_address(environment: Mapping[str, str], nodes: int) -> str:
    """Find the address of the first node of the surrounding Slurm job.

    Raises:
        LaunchError: there is no surrounding Slurm job, or it has another number of nodes.
    """
    job = environment.get("SLURM_JOB_ID")
    if not job:
        raise LaunchError(
            f"nodes = {nodes} requires a Slurm job, or a Job of Kubernetes with as many pods: use --workflow-profile "
            "profiles/slurm, or profiles/kubernetes/nodes.yaml"
        )
    described = _asked("scontrol", "show", "job", job)
    names = _asked("scontrol", "show", "hostnames", _field("NodeList", described)).split()
    if len(names) != nodes:
        raise LaunchError(f"nodes = {nodes}, and Slurm's job {job} has {len(names)}: {', '.join(names)}")
    return _field("NodeAddr", _asked("scontrol", "show", "node", names[0]))


def _field(name: str, text: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S+)", text)
    if not found:
        raise LaunchError(f"scontrol does not report {name}: it says {text.strip() or 'nothing'}")
    return found[1]


def _asked(*command: str) -> str:
    answer = external_programs.ask_program(command)
    if answer.returncode:
        raise LaunchError(f"{' '.join(command)}: {answer.stderr.strip()}")
    return answer.stdout


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code, in a Slurm job only if starting failed."""
    nodes, gpus, *program = arguments
    try:
        if pod_nodes.INDEX in os.environ:
            return pod_nodes.launch(int(nodes), int(gpus), program, os.environ)
        address = first_node_address(os.environ, int(nodes))
    except (CollectError, LaunchError, OSError) as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    command = srun_words(int(nodes), int(gpus), program, os.environ["SLURM_JOB_ID"], address)
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
