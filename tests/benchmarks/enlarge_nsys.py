"""Makes a large nsys export from a small one: its launches, calls and ranges over and over, later and later.

python -m tests.benchmarks.enlarge_nsys SMALL.sqlite LARGE.sqlite LAUNCHES
"""

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

TIMED = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")


def enlarge(small: Path, large: Path, launches: int) -> int:
    """Write an export of at least that many launches; returns how many it has."""
    shutil.copyfile(small, large)
    with closing(sqlite3.connect(large)) as database:
        database.execute("PRAGMA synchronous = OFF")
        kernels = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
        span, calls = database.execute(
            "SELECT max(end) - min(start) + 1000, max(correlationId) + 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        ).fetchone()
        copies = -(-launches // kernels)
        database.execute("CREATE TEMP TABLE copy AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
                         "WHERE i < ? - 1) SELECT i FROM n", (copies,))  # fmt: skip
        for table in TIMED:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            shifted = {"start": f"start + i * {span}", "end": f"end + i * {span}"}
            shifted["correlationId"] = f"correlationId + i * {calls}"
            values = ", ".join(shifted.get(column, column) for column in columns)
            database.execute(f"CREATE TEMP TABLE once AS SELECT * FROM {table}")
            database.execute(f"INSERT INTO {table} SELECT {values} FROM copy, once ORDER BY i, once.rowid")
            database.execute("DROP TABLE once")
        database.commit()
        return copies * kernels


if __name__ == "__main__":
    print(enlarge(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])), "launches")
