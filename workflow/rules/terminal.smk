# Needs: nothing. Makes: TERMINAL, which prints the messages of a run. A user's --logger and -q have precedence.
TERMINAL = None
if MAIN and workflow.is_main_process:
    from functools import partial

    from profzoo.terminal import log_handler

    # `snakemake --list` prints the rules this way.
    workflow.list_rules = partial(log_handler.list_rules, workflow)

    TERMINAL = log_handler.take_over(workflow)
