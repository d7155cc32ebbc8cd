"""Tests of faults: real processes are killed, or meet damaged files, at planned moments."""
