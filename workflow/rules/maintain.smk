# Needs: nothing. Says what this machine can profile; keeps a record of what the workflow makes, and removes that.
from profzoo import clean


onstart:
    # Before the first job, so that a run that is killed has said what it was making.
    clean.note(making(workflow.dag.needrun_jobs()))


rule doctor:
    """Say what this machine can profile, and what to do where it cannot."""
    log:
        "<logs>/doctor.log",
    shell:
        "python -m profzoo.doctor 2>&1 | tee {log:q}"


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
