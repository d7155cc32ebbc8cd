"""Caps the size of a job's log: keeps the beginning and the end of the output, and drops the middle.

The beginning is written at once. The end is written when the job has ended, because only then it is known.
"""

import fcntl
import os
import select
import time
from contextlib import suppress

# Sizes of a log and of the pipe; with a large pipe, a program that prints much waits less.
LOG_BYTES = 8 << 20
PIPE_BYTES = 1 << 20
# The end begins with a whole line if a line begins within this number of bytes.
LINE_BYTES = 4096


class CappedLog:
    """A pipe whose content goes to a file; programs print to `given`, this process reads from `source`.

    Args:
        target: descriptor of the file. limit: bytes that it gets at most, but for a line between beginning and end.
    """

    def __init__(self, target: int, limit: int = LOG_BYTES) -> None:
        self.source, self.given = os.pipe()
        with suppress(OSError):
            fcntl.fcntl(self.source, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(self.source, False)
        self._target = target
        self._first = limit // 2
        # A ring buffer of the last bytes; `_came` counts all bytes that were written to it.
        self._ring = memoryview(bytearray(limit - self._first))
        self._came = 0

    def read(self) -> bool:
        """Read available output; False once no process can print any more."""
        try:
            if not self._first:
                count = os.readv(self.source, [self._ring[self._came % len(self._ring) :]])
                self._came += count
                return bool(count)
            part = os.read(self.source, min(self._first, PIPE_BYTES))
        except BlockingIOError:
            return True
        self._first -= len(part)
        self._write(part)
        return bool(part)

    def wait(self, seconds: float) -> None:
        """Wait at most `seconds` for output and read it, so that no program blocks on a full pipe."""
        deadline = time.monotonic() + seconds
        waiting = select.poll()
        waiting.register(self.source, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            if waiting.poll(left * 1000 + 1) and not self.read():
                time.sleep(max(deadline - time.monotonic(), 0))

    def close(self) -> None:
        """Read the rest of the pipe and write the end into the file; later writers get a broken pipe."""
        room, came = 2 * PIPE_BYTES, -1
        while room > 0 and came != self._came - self._first:
            came = self._came - self._first
            self.read()
            room -= self._came - self._first - came
        os.close(self.source)
        place = self._came % len(self._ring)
        lost = self._came - len(self._ring)
        if lost <= 0:
            self._write(self._ring[:place] if lost else self._ring)
            return
        last = bytes(self._ring[place:]) + bytes(self._ring[:place])
        begin = last.find(b"\n", 0, LINE_BYTES) + 1
        self._write(f"\n... {lost + begin:,} bytes left out ...\n".encode())
        self._write(last[begin:])

    def _write(self, part: bytes | memoryview) -> None:
        """Write to the file; on a full disk, drop the output so that the program can go on."""
        with suppress(OSError):
            while part:
                part = part[os.write(self._target, part) :]
