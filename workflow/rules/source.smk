# Needs: git, if this workflow is a module that another workflow loads by git. Makes: ROOT, the folder of the workflow,
# from which this process and its jobs import the package and the zoo; MAIN, whether this workflow is not a module.
import gc
import runpy

# Objects that Snakemake has loaded stay until it ends, and searching them for garbage takes a fifth of a start. Most of
# what it makes for a plan stays too, and is rarely searched.
gc.freeze()
gc.set_threshold(100_000, 50, 50)
MAIN = workflow.modifier.is_main_snakefile()
# The module is run by its path, because the package cannot be imported yet.
SOURCE = runpy.run_path(workflow.source_path("../../profzoo/workflow/checkout.py"))
ROOT = SOURCE["find_root"](workflow.current_basedir, refresh=workflow.is_main_process)
SOURCE["import_from"](ROOT)
