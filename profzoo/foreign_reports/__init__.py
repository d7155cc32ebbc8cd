"""Reports made elsewhere, converted to the files that profzoo's own collecting jobs leave.

A converter reads a file of another program and never changes it. What the file does not tell stays missing: facts are
null, coverage is told in the sidecar under `imported`, and a file of which nothing can be used is refused in one line.
"""
