"""A real Slurm for tests, with one node and simulated GPUs, on loopback and in a temporary folder."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
GPUS = 2
# Debian installs daemons in folders that are not on users' PATH.
SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
CONFIGURATION = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
# Without a database, squeue has to remember finished jobs.
MinJobAge=3600
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
# Refuse what can never run, instead of keeping it pending.
EnforcePartLimits=ALL
ReturnToService=2
KillWait=5
InactiveLimit=0
SlurmdTimeout=10
SchedulerParameters=batch_sched_delay=0,bf_interval=5
SlurmdParameters=config_overrides
{loopback}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=600 DefaultTime=10 DefMemPerCPU=200 State=UP
"""

NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 Boards=1 SocketsPerBoard=1 "
    "CoresPerSocket=16 ThreadsPerCore=1 RealMemory=64000 Gres=gpu:h200:{gpus} State=UNKNOWN"
)


def missing() -> list[str]:
    """Return the programs of Slurm that are missing on this machine."""
    return [name for name in PROGRAMS if not shutil.which(name, path=SEARCH)]


def waited(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until the condition holds.

    Raises:
        TimeoutError: it did not within that time; what: what was waited for.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.1)


class Slurm:
    """Slurm's daemons; each is started in the foreground as a child process, and stopped by its id."""

    def __init__(self, folder: Path, nodes: int = 1) -> None:
        """folder: a short path, because sockets are in it; nodes: number of simulated nodes, all on this machine."""
        self.folder, self.children = folder, dict[str, subprocess.Popen[bytes]]()
        self.host = socket.gethostname().partition(".")[0]
        self.nodes = [self.host] if nodes == 1 else [f"{self.host}-{index}" for index in range(nodes)]
        for name in ("state", "spool", "dev", "bin"):
            (folder / name).mkdir(parents=True)
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder / 'bin'}:{SEARCH}"}
        self._configure()

    def _configure(self) -> None:
        # Whose own name is not on loopback would otherwise listen on every address it has.
        try:
            own = socket.gethostbyname(self.host) == "127.0.0.1"
        except OSError:
            own = False
        nodes = [NODE.format(name=name, host=self.host, port=_free_port(), gpus=GPUS) for name in self.nodes]
        text = CONFIGURATION.format(
            host=self.host, controller=_free_port(), nodes="\n".join(nodes), user=_user(), folder=self.folder,
            loopback="CommunicationParameters=NoInAddrAny,NoCtldInAddrAny" if own else "",
        )  # fmt: skip
        (self.folder / "slurm.conf").write_text(text)
        devices = [self.folder / "dev" / f"nvidia{index}" for index in range(GPUS)]
        for device in devices:
            # Slurm accepts only character devices as GPUs.
            device.symlink_to("/dev/null")
        (self.folder / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName={','.join(self.nodes)} Name=gpu Type=h200 File={self.folder}/dev/nvidia[0-{GPUS - 1}]\n"
        )
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        # Inside a job Snakemake drops SLURM_CONF before it calls srun, and before what the job calls.
        for name in ("srun", "scontrol"):
            wrapper, real = self.folder / "bin" / name, shutil.which(name, path=SEARCH)
            wrapper.write_text(f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {real} "$@"\n')
            wrapper.chmod(0o755)

    def start(self) -> None:
        """Start all daemons and wait until the node takes jobs."""
        socket_path = self.folder / "munge.sock"
        self._run("munged", "--foreground", f"--socket={socket_path}", f"--key-file={self.folder / 'munge.key'}",
                  f"--pid-file={self.folder / 'munged.pid'}", f"--log-file={self.folder / 'munged.log'}",
                  f"--seed-file={self.folder / 'munged.seed'}", "--force")  # fmt: skip
        waited(socket_path.exists, 60, "munged")
        self.start_controller()
        self.start_node()

    def start_controller(self) -> None:
        self._run("slurmctld", "-D")
        waited(lambda: "is UP" in self.ask("scontrol", "ping"), 120, "slurmctld")

    def start_node(self) -> None:
        for name in self.nodes:
            self._run("slurmd", "-D", "-N", name, child="slurmd" if name == self.nodes[0] else name)
        waited(self._up, 120, "the node")

    def _up(self) -> bool:
        states = self.ask("sinfo", "-h", "-N", "-o", "%T").split()
        return len(states) == len(self.nodes) and set(states) <= {"idle", "mixed", "allocated"}

    def stop(self, name: str) -> None:
        child = self.children.pop(name)
        child.terminate()
        try:
            child.wait(timeout=15)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def crash_node(self) -> None:
        """Kill the node's daemon and all its jobs at once, as a loss of power does."""
        running = [int(line.split()[0]) for line in self.ask("scontrol", "listpids").splitlines()[1:]]
        # The daemon of a step is an ancestor of the step's processes, and outlives the node's daemon.
        lost = {process for pid in running if psutil.pid_exists(pid) for process in _up_to_step(psutil.Process(pid))}
        self.children["slurmd"].kill()
        self.children.pop("slurmd").wait()
        for process in lost:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def close(self) -> None:
        """Cancel remaining jobs and stop all daemons, the last one first."""
        if "slurmctld" in self.children:
            self.ask("scancel", f"--user={_user()}")
            with contextlib.suppress(TimeoutError):
                waited(lambda: not self.jobs(), 15, "jobs to end")
        for name in reversed(list(self.children)):
            self.stop(name)

    def ask(self, *command: str) -> str:
        """Return the output of a command of Slurm; empty if it fails."""
        env = {**os.environ, **self.environment}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60).stdout

    def jobs(self) -> dict[str, str]:
        """Return waiting and running jobs with their states."""
        lines = self.ask("squeue", "-h", "-o", "%i %T").split("\n")
        return dict(line.split() for line in lines if line)

    def _run(self, program: str, *words: str, child: str = "") -> None:
        path = shutil.which(program, path=SEARCH)
        log = (self.folder / f"{child or program}.out").open("wb")
        env = {**os.environ, **self.environment}
        self.children[child or program] = subprocess.Popen(
            [str(path), *words], env=env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )


@contextlib.contextmanager
def running(folder: Path, nodes: int = 1) -> Iterator[Slurm]:
    """Yield a Slurm with a number of nodes, and stop it afterwards in any case."""
    slurm = Slurm(folder, nodes)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.close()


def _up_to_step(process: psutil.Process) -> list[psutil.Process]:
    """Return a process and its ancestors, up to the daemon of its step."""
    chain = [process, *process.parents()]
    step = next((index for index, one in enumerate(chain) if one.name().startswith("slurmstepd")), 0)
    return chain[: step + 1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
