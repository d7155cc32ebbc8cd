"""How long what a job left, and what is shared, is searched for secrets: CPU time of random bytes and five values.

python -m tests.benchmarks.secret_search [MIB] [REPEATS]
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from profzoo import redaction
from profzoo.collect import secret_leaks


def main(mib: int = 200, repeats: int = 5) -> None:
    """Print the median."""
    wanted = {f"S{number}": (os.urandom(20).hex().encode(),) for number in range(5)}
    job, share = list[float](), list[float]()
    known = redaction.Known({name: tuple(redaction.forms(forms[0].decode())) for name, forms in wanted.items()}, {}, {})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report")
        with path.open("wb") as file:
            for _ in range(mib):
                file.write(os.urandom(2**20))
        for _ in range(repeats):
            began = time.process_time()
            secret_leaks.find_secret_in_file(path, wanted)
            job.append(time.process_time() - began)
            began = time.process_time()
            redaction.find_secret_in_bytes(path, known)
            share.append(time.process_time() - began)
    for what, times in (("by a job", job), ("to be shared", share)):
        print(f"{mib} MiB {what}: {statistics.median(times):.2f} s, median of {repeats}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
