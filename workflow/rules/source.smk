# Needs: git, where this workflow is a module that comes by git. Makes: ROOT, the folder that holds all of the workflow,
# for this process and its jobs to import the package and the zoo from; and MAIN, whether it is a module of no other.
import gc
import runpy

# What Snakemake has loaded stays as long as it runs: to look for garbage in it again and again is a fifth of a start.
gc.freeze()
MAIN = workflow.modifier.is_main_snakefile()
# By its file, as nothing can be imported yet.
SOURCE = runpy.run_path(workflow.source_path("../../profzoo/workflow/checkout.py"))
ROOT = SOURCE["find_root"](workflow.current_basedir, refresh=workflow.is_main_process)
SOURCE["import_from"](ROOT)
