# Needs: nothing. Says what this machine can profile; packs results for others; keeps results to one run at a time; keeps
# a record of what the workflow makes, and removes that.
import sys
import time

from profzoo import clean, stopping
from profzoo.collect import failures
from profzoo.machine import results_lock

# Snakemake's own lock is on the folder that it runs in, and several may share their results.
FOUND = results_lock.seen(Path(RESULTS)) if workflow.is_main_process else None


onstart:
    # What the machine can profile is no part of any results.
    if workflow.execution_settings.lock and {job.rule.name for job in workflow.dag.needrun_jobs()} - {
        "doctor",
        "examine_machine",
    }:
        checked(results_lock.take, Path(RESULTS), FOUND)
    # Before the first job, so that a run that is killed has said what it was making.
    clean.note(making(workflow.dag.needrun_jobs()))
    stopping.heed(workflow)


onerror:
    # Above are hundreds of lines of other jobs.
    at, dag = workflow.scheduler, workflow.dag
    print(failures.told(failed(at), unmade(dag, at), sys.argv, workflow.dag_settings.targets), file=sys.stderr)


rule examine_machine:
    """Find out what the machine can profile: this one, or a GPU node where a batch system runs the jobs."""
    output:
        "<results>/doctor.txt",
    log:
        "<logs>/doctor.log",
    retries: 0
    envmodules:
        *modules(*(name for name in tools.names() if "envmodules" in config[name])),
    threads: CORES
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
        seen=config["environment"],
        reports=["--reports"] if config["share"]["reports"] else [],
        config=json.dumps(config, sort_keys=True),
    shell:
        "python -m profzoo.share {params.reports:q} --config {params.config:q} {params.results:q} {output:q}"
        " {params.seen:q} 2>&1 | tee {log:q}"


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
