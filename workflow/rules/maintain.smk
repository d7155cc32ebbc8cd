# Needs: nothing. Says what this machine can profile; packs results for others; keeps results to one run at a time; keeps
# a record of what the workflow makes, and removes that.
import json
import shutil
import sys
import time

from snakemake.dag import DAG

from profzoo import clean, shutdown
from profzoo.collect import batch_system, failure_summary, output_refusals, partial_report
from profzoo.collect import run_state
from profzoo.machine import results_lock
from profzoo.terminal import unavailable_tools
from profzoo.workflow import overwrite_guard, run_end, run_locks, snakemake_internals

# Before Snakemake looks for locks and for what a killed run was making; a module is to run by its own workflow's options.
if workflow.is_main_process:
    run_locks.take_over(MAIN)
# Snakemake's own lock is on the folder that it runs in, and several may share their results.
FOUND = results_lock.inspect_folder(Path(RESULTS)) if workflow.is_main_process else None
PAGE = f"{RESULTS}/report.html"

shutdown.end_at_once()
SALVAGED = Path(LOGS, "report.rest.log")

# Whether jobs run here, take what GPU there is, and find none.
GPU_MISSING = (
    workflow.local_exec
    and config["device"] == "auto"
    and not unavailable_tools.count_gpus()
    and not shutil.which("nvidia-smi")
)

# What a batch system says of jobs.
HEARD = batch_system.BatchMessages()

# In the processes of single jobs, too.
if MAIN:
    output_refusals.note_refusals(DAG)

# What ends only when it is told to.
ENDLESS = {"serve"}


onstart:
    RUNNING = {job.rule.name for job in snakemake_internals.jobs_to_run(workflow.dag)}
    run_checked(shutdown.check_alone, RUNNING, ENDLESS)
    # What the machine can profile is no part of any results.
    if workflow.execution_settings.lock and RUNNING - {
        "doctor",
        "examine_machine",
        "help",
        *ENDLESS,
    }:
        if warned := run_checked(results_lock.lock_results, Path(RESULTS), FOUND):
            say(f"warning: {warned}")
        # Of runs that were killed.
        run_state.forget_run(others=True)
    planned = snakemake_internals.jobs_to_run(workflow.dag)
    run_checked(overwrite_guard.check, planned, clean.read_recorded_paths(), GPU_MISSING)
    # Before the first job, so that a run that is killed has said what it was making.
    clean.record_paths(run_end.made_files(planned))
    shutdown.heed_sigterm(workflow, RUNNING & ENDLESS)
    HEARD.heed(snakemake_internals.executor_of(workflow))


onerror:
    # Above are hundreds of lines of other jobs.
    at, dag = workflow.scheduler, workflow.dag
    lost = list(run_end.failed_jobs(dag, at, TERMINAL, HEARD.said))
    told = failure_summary.format_failures(
        lost, run_end.count_unrun(dag, at), sys.argv, workflow.dag_settings.targets
    )
    print(secret_values.mask_secrets(told), file=sys.stderr)
    if TERMINAL:
        if TERMINAL.progress:
            TERMINAL.progress.said = HEARD.said
        TERMINAL.close_run()
    if completeness.WITHOUT in os.environ:
        # Of a report of what another run has left, that run is told.
        partial_report.note_failures(lost)
    elif MAIN and run_end.can_report_rest(dag, lost):
        # Before, as whoever is killed meanwhile has made some of it.
        clean.record_paths([str(SALVAGED)])
        if TERMINAL and TERMINAL.ended:
            TERMINAL.say("report  is being made of what there is, unless you end that as well")
        run = str(workflow.main_snakefile), workflow.cores or 1
        print(
            partial_report.make_partial_report(
                PAGE, run_end.report_failures(dag, lost), run_end.unfinished_files(dag), config, run, SALVAGED
            ),
            file=sys.stderr,
        )
    run_state.forget_run()


onsuccess:
    if TERMINAL:
        TERMINAL.close_run()
    run_state.forget_run()


rule help:
    """Say what a user types."""
    log:
        ".snakemake/log/help.log",
    localrule: True
    params:
        text=str(ROOT / "workflow" / "help.txt"),
    shell:
        "cat {params.text:q} 2> {log:q}"


rule examine_machine:
    """Find out what the machine can profile: this one, or a GPU node where a batch system runs the jobs."""
    output:
        "<results>/doctor.txt",
    log:
        "<logs>/doctor.log",
    retries: 0
    envmodules:
        *modules(*(name for name in tools.names() if "envmodules" in config[name])),
    threads: cores_of_one
    resources:
        **on_one_gpu(minutes=10),
    params:
        # What was found holds for that moment alone: a job by other parameters is run again.
        asked=time.time_ns(),
    shell:
        "python -m profzoo.doctor > {output:q} 2> {log:q}"


rule doctor:
    """Say what this machine can profile, and what to do where it cannot."""
    input:
        "<results>/doctor.txt",
    log:
        "<logs>/doctor.cat.log",
    # Whoever asks sees it in the terminal.
    localrule: True
    shell:
        "cat {input:q} 2> {log:q}"


rule serve:
    """Serve the report at an address with a token, until Ctrl-C: a page that opens traces in Perfetto."""
    log:
        ".snakemake/log/serve.log",
    retries: 0
    # No input and no output, so that other runs may make the report anew meanwhile.
    localrule: True
    params:
        results=RESULTS,
        port=config["serve"]["port"],
        perfetto=config["serve"]["perfetto"],
    shell:
        "exec python -m profzoo.serve {params.results:q} --port {params.port} --perfetto {params.perfetto:q} 2> {log:q}"


rule verify:
    """Hold every file of the results against its record: what is damaged, gone, or has no record."""
    log:
        "<logs>/verify.log",
    localrule: True
    params:
        results=RESULTS,
    shell:
        "python -m profzoo.verify {params.results:q} 2>&1 | tee {log:q}"


rule share:
    """Pack what of the results may be given away, with a list of it and where it comes from: no logs, no weights."""
    output:
        "<results>/share.tar.gz",
    log:
        "<logs>/share.log",
    localrule: True
    params:
        # Of what is there now, whatever made it.
        asked=time.time_ns(),
        results=lambda wildcards: RESULTS,
        reports=["--reports"] if config["share"]["reports"] else [],
        config=json.dumps(secret_values.replace_all_secrets(config), sort_keys=True),
    shell:
        "python -m profzoo.share {params.reports:q} --config {params.config:q} {params.results:q} {output:q}"
        " 2>&1 | tee {log:q}"


rule clean:
    """Remove what the workflow made from this folder, by its record of that, and nothing else."""
    log:
        ".snakemake/log/clean.log",
    # The record is where snakemake was called.
    localrule: True
    run:
        said = clean.main(RESULTS)
        print(said)
        Path(log[0]).write_text(f"{said}\n")
