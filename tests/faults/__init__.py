"""Faults: real processes that are killed, or meet what is damaged, at planned moments."""
