# Needs: nothing. Reports what this machine can profile, packs results for others, and locks results for one run at a
# time. Records the files that the workflow makes, and removes them on request.
import json
import shlex
import sys
import time

from snakemake.dag import DAG

from profzoo.cli import clean
from profzoo.workflow import shutdown
from profzoo.collect import failures, partial_report
from profzoo.collect import failures
from profzoo.machine import file_locks
from profzoo.terminal import results_status
from profzoo.tools import unavailable_tools
from profzoo.workflow import run_end, run_locks, snakemake_internals

# This comes before Snakemake looks for locks and for unfinished files of a killed run. A module runs with the options
# of the workflow that uses it.
if workflow.is_main_process:
    run_locks.take_over(MAIN)
# Snakemake's own lock is for its working folder, but several working folders may share their results.
FOUND = file_locks.inspect_folder(Path(RESULTS)) if workflow.is_main_process else None
PAGE = f"{RESULTS}/report.html"

shutdown.end_at_once()
SALVAGED = Path(LOGS, "report.rest.log")
# The log of tables that rules make one by one, after a job that joins rules failed.
APART = Path(LOGS, "tables.rest.log")

# Whether jobs run on this machine with `device: auto`, and it has no GPU.
GPU_MISSING = RUNS_HERE and config["device"] == "auto" and unavailable_tools.lacks_gpu()

# Models that `clean` removes and `status` lists; all of both without names on the command line.
NAMED = []
if MAIN and {"clean", "status"} & set(sys.argv[1:]):
    NAMED = run_checked(clean.name_models, TOLD, SELECTED, "clean" in sys.argv[1:])
if TERMINAL:
    TERMINAL.foretold["clean"] = partial(clean.describe_made, RESULTS, NAMED)
    TERMINAL.foretold["status"] = partial(list, results_status.ONLY_PRINTS)

# Messages of a batch system about jobs.
HEARD = failures.BatchMessages()

# This also runs in the processes of single jobs.
if MAIN:
    failures.note_refusals(DAG)

# Rules whose jobs end only on a signal.
ENDLESS = {"serve"}


onstart:
    RUNNING = {job.rule.name for job in snakemake_internals.jobs_to_run(workflow.dag)}
    run_checked(shutdown.check_alone, RUNNING, ENDLESS)
    # `doctor` and similar rules use no results, so they need no lock.
    if workflow.execution_settings.lock and RUNNING - {
        "doctor",
        "examine_machine",
        "help",
        "metrics",
        "status",
        *ENDLESS,
    }:
        if warned := run_checked(file_locks.lock_results, Path(RESULTS), FOUND):
            say(f"warning: {warned}")
        # Remove the states of runs that were killed.
        failures.forget_run(others=True)
    planned = snakemake_internals.jobs_to_run(workflow.dag)
    run_checked(run_end.check, planned, clean.read_recorded_paths(), GPU_MISSING, config["collect"])
    # This comes before the first job, so that files of a killed run are recorded too.
    clean.record_paths(run_end.made_files(planned))
    # Jobs of a batch system start on other machines.
    if workflow.local_exec and config["collect"] and config["fork"]:
        jobs.fork_jobs(planned, config)
        jobs.fork_profiled(RUNNING, config)
    if withheld := run_end.describe_withheld(planned, config["variables"]):
        say(withheld)
    shutdown.heed_sigterm(workflow, RUNNING & ENDLESS, TERMINAL and TERMINAL.note_ending)
    HEARD.heed(snakemake_internals.executor_of(workflow))
    if "status" in RUNNING:
        judge = partial(results_status.judge_file, workflow.dag, import_graph.PROJECT)
        results_status.write_status(Path(RESULTS), NAMED, judge)


onerror:
    # The summary repeats the errors, because hundreds of lines about other jobs are above.
    at, dag = workflow.scheduler, workflow.dag
    lost = list(run_end.failed_jobs(dag, at, TERMINAL, HEARD.said))
    # A batch system's run has no number of cores.
    cores = min(snakemake_internals.limit_of(workflow, "_cores") or 1, os.cpu_count() or 1)
    run = str(workflow.main_snakefile), cores
    going_on = MAIN and workflow.execution_settings.keep_going and not (TERMINAL and TERMINAL.ended)
    if going_on and not shutdown.was_told_to_end() and (apart := run_end.files_apart(dag, lost)):
        clean.record_paths([str(APART)])
        lost += partial_report.make_apart(apart, config, run, APART)
    told = failures.format_failures(lost, run_end.count_unrun(dag, at), sys.argv, workflow.dag_settings.targets)
    print(secret_values.mask_secrets(told), file=sys.stderr)
    if TERMINAL:
        if TERMINAL.progress:
            TERMINAL.progress.said = HEARD.said
        TERMINAL.close_run()
    if partial_report.COMPLETENESS_WITHOUT in os.environ:
        # This run makes a partial report for another run, which reports its failures.
        partial_report.note_failures(lost)
    elif MAIN and shutdown.was_told_to_end():
        if run_end.can_report_rest(dag, lost):
            later = failures.rerun_command("report", sys.argv, workflow.dag_settings.targets, "collect=false")
            told = f"report  none, because the run was told to end: `{shlex.join(later)}` makes one"
            print(secret_values.mask_secrets(told), file=sys.stderr)
    elif MAIN and run_end.can_report_rest(dag, lost):
        # The file is recorded before it is made, because a kill may leave a part of it.
        clean.record_paths([str(SALVAGED)])
        if TERMINAL and TERMINAL.ended:
            TERMINAL.say("report  is made from the results so far; Ctrl-C skips it")
        later = failures.rerun_command("report", sys.argv, workflow.dag_settings.targets, "collect=false")
        told, made = partial_report.make_partial_report(
            PAGE,
            run_end.report_failures(dag, lost),
            run_end.unfinished_files(dag),
            config,
            run,
            SALVAGED,
            secret_values.mask_secrets(shlex.join(later)),
        )
        print(told, file=sys.stderr)
        if TERMINAL and made:
            TERMINAL.say_answer(run_end.tables_of_answer(Path(RESULTS), partial_report.read_lost()))
    failures.forget_run()


onsuccess:
    if TERMINAL:
        TERMINAL.close_run()
    failures.forget_run()


rule help:
    """Print the commands that users need."""
    log:
        ".snakemake/log/help.log",
    localrule: True
    params:
        text=str(ROOT / "workflow" / "help.txt"),
        here=unavailable_tools.NO_GPU_HERE if RUNS_HERE and unavailable_tools.lacks_gpu() else "",
    shell:
        "cat {params.text:q} 2> {log:q} && printf '%s' {params.here:q}"


rule examine_machine:
    """Examine what this machine, or a GPU node of the batch system, can profile."""
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
        # The result is only valid now. A parameter that always differs makes the job run again.
        asked=time.time_ns(),
        weights=len({JOBS.weights_of(*cell) or None for cell in CELLS} - {None}),
        cells=len(CELLS),
        tools=TOOLS,
    shell:
        'python -m profzoo.cli.doctor --results "$(dirname {output:q})" --weights {params.weights} --cells {params.cells}'
        " --tools {params.tools:q} > {output:q} 2> {log:q}"


rule doctor:
    """Say what this machine can profile, and what to do where it cannot."""
    input:
        "<results>/doctor.txt",
    log:
        "<logs>/doctor.cat.log",
    # The result must appear in the user's terminal.
    localrule: True
    shell:
        "cat {input:q} 2> {log:q}"


rule status:
    """List what was measured: when, by which versions, and whether it is up to date."""
    log:
        ".snakemake/log/status.log",
    # Only the run itself knows what it would make again, and it has written that before this job.
    localrule: True
    params:
        printed=str(results_status.PRINTED),
    shell:
        "cat {params.printed:q} 2> {log:q}"


rule metrics:
    """List ncu's metrics by name, unit and description, and mark those that section sets collect."""
    log:
        ".snakemake/log/metrics.log",
    retries: 0
    # The result must appear in the user's terminal.
    localrule: True
    envmodules:
        *modules("ncu"),
    params:
        match=config["match"] or "",
        chip=config["chip"] or "",
        sets=json.dumps(config["ncu"]["sets"], sort_keys=True),
    shell:
        "python -m profzoo.tools.ncu.metric_list --match={params.match:q} --chip={params.chip:q} --sets {params.sets:q}"
        " 2>&1 | tee {log:q}"


rule serve:
    """Serve the report at an address with a token, until Ctrl-C: a page that opens traces in Perfetto."""
    log:
        ".snakemake/log/serve.log",
    retries: 0
    # The rule has no input and no output, so that other runs can make the report again in the meantime.
    localrule: True
    params:
        results=RESULTS,
        port=config["serve"]["port"],
        perfetto=config["serve"]["perfetto"],
    shell:
        "exec python -m profzoo.cli.serve {params.results:q} --port {params.port} --perfetto {params.perfetto:q} 2> {log:q}"


rule verify:
    """Compare every file of the results with its record; list damaged files, missing files and files without record."""
    log:
        "<logs>/verify.log",
    localrule: True
    params:
        results=RESULTS,
    shell:
        "python -m profzoo.cli.verify {params.results:q} 2>&1 | tee {log:q}"


rule share:
    """Pack results of the selected models that can be given to others, with a list of files and their origin."""
    output:
        "<results>/share.tar.gz",
    log:
        "<logs>/share.log",
    localrule: True
    params:
        # The archive holds the present files. A parameter that always differs makes the job run again.
        asked=time.time_ns(),
        results=lambda wildcards: RESULTS,
        reports=["--reports"] if config["share"]["reports"] else [],
        models=json.dumps(sorted({name.partition("@")[0] for name in SELECTED})),
        config=json.dumps(secret_values.replace_all_secrets(config), sort_keys=True),
    shell:
        "python -m profzoo.cli.share {params.reports:q} --models {params.models:q} --config {params.config:q} {params.results:q} {output:q}"
        " 2>&1 | tee {log:q}"


rule clean:
    """Remove the files that the workflow made from this folder, all or of named models, and nothing else."""
    log:
        ".snakemake/log/clean.log",
    # The record is in the folder that snakemake was called in.
    localrule: True
    params:
        results=RESULTS,
        models=NAMED,
    shell:
        "python -m profzoo.cli.clean {params.results:q} --models {params.models:q} 2>&1 | tee {log:q}"
