# Needs: nothing. Ends the run with one line where an installed version is too old. It comes before all other files,
# because older releases of Snakemake cannot read these.
import runpy
import sys

# The file is run by its path, because the package cannot be imported yet. Snakemake would add lines to an error.
TOO_OLD = runpy.run_path(workflow.source_path("../../profzoo/versions.py"))["explain_too_old"]()
if TOO_OLD:
    sys.exit(f"profzoo: {TOO_OLD}")
