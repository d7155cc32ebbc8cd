# Needs: nothing. Makes: TERMINAL, which prints the messages of a run. A user's --logger and -q have precedence.
TERMINAL = None
if MAIN and workflow.is_main_process:
    from functools import partial

    from profzoo.terminal import logger_takeover

    # `snakemake --list` prints the rules this way.
    workflow.list_rules = partial(logger_takeover.list_rules, workflow)

    TERMINAL = logger_takeover.take_over(workflow)
