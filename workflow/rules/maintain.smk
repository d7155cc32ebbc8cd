# Needs: nothing. Says what this machine can profile; removes what the workflow made.


rule doctor:
    """Say what this machine can profile, and what to do where it cannot."""
    input:
        source("doctor.py"),
    log:
        "<logs>/doctor.log",
    shell:
        "python -m workflow.scripts.doctor 2>&1 | tee {log:q}"


rule clean:
    """Remove what the workflow made, and nothing else."""
    log:
        ".snakemake/log/clean.log",
    run:
        said = clean.main(made(), RESULTS)
        print(said)
        Path(log[0]).write_text(f"{said}\n")
