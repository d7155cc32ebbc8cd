"""Realistic steps with one planted cause of slowness each, and a mended twin: what advice is held against.

`cases.py` has the record of a case and words for causes, independent of profzoo's rules. `development/` and `held_out/`
have twenty cases each; whoever develops rules does not look at the second half or its results. `sealed/` has twenty more
of other families, whose results are looked at once. `verdict_causes.yaml` says which of the causes each verdict names, so
a new verdict needs a line there. On a machine with a GPU, `try_out.py` says what a step takes and what mending gains;
`collect.py` records times and traces, going on where its last call ended, and `derive.py` makes tables from these on any
machine. `first_look.py` does all of this for the sealed cases. docs/guides/trials.md has the commands.
"""
