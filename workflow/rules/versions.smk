# Needs: nothing. Ends the run with one line where an installed version is too old, or on Ctrl-C before its first job. It
# comes before all other files, because older releases of Snakemake cannot read these.
import runpy
import sys

# Files are run by their paths, because the package cannot be imported yet.
runpy.run_path(workflow.source_path("../../profzoo/errors.py"))["shorten_interrupts"](
    "profzoo: ended by Ctrl-C" if workflow.is_main_process else ""
)
# Snakemake would add lines to an error.
TOO_OLD = runpy.run_path(workflow.source_path("../../profzoo/versions.py"))["explain_too_old"]()
if TOO_OLD:
    sys.exit(f"profzoo: {TOO_OLD}")
