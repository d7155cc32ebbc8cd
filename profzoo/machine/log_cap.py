"""Keeps the beginning and the end of what a job prints, so that no log fills a disk or takes long to read.

The beginning is in the file at once; the end, of which only the last part is known, once the job has ended.
"""

import fcntl
import os
import select
import time
from contextlib import suppress

# Of a log; and of the pipe, in which a program that prints much waits less the longer it is.
LOG_BYTES = 8 << 20
PIPE_BYTES = 1 << 20
# Within so many bytes, the end begins with a whole line.
LINE_BYTES = 4096


class CappedLog:
    """A pipe whose content goes to a file; given: the end of it that programs print to, source: the other.

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
        # The last bytes, the next of which takes the place of the oldest; `_came`: of how many.
        self._ring = memoryview(bytearray(limit - self._first))
        self._came = 0

    def read(self) -> bool:
        """Take some of what is there; False where nobody is left who could print more."""
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
        """Take what comes within that time: whoever waits for room in the pipe would not end."""
        deadline = time.monotonic() + seconds
        waiting = select.poll()
        waiting.register(self.source, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            if waiting.poll(left * 1000 + 1) and not self.read():
                time.sleep(max(deadline - time.monotonic(), 0))

    def close(self) -> None:
        """Take what is in the pipe, and put the end into the file; who prints more is told that nobody reads it."""
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
        """Write to the file; where its disk is full, the program goes on without."""
        with suppress(OSError):
            while part:
                part = part[os.write(self._target, part) :]
