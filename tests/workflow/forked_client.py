"""Stands for a script where Snakemake started it, while a process of `forked_scripts` runs it: `SOCKET SCRIPT`."""

import marshal
import os
import socket
import sys


def ask(path: str, script: str) -> None:
    """Let the process that listens at the socket run the script, and end with its exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(f"\0{path}")
        os.umask(mask := os.umask(0))
        # pathlib is avoided, because its import takes longer than this whole script.
        folder = os.getcwd()  # noqa: PTH109
        request = marshal.dumps(([sys.orig_argv[0], script], folder, dict(os.environ), mask))
        socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(request)
        answer = server.recv(8)
    # There is no answer if that process was killed.
    code = int.from_bytes(answer, "big", signed=True) if answer else 1
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    ask(*sys.argv[1:])
