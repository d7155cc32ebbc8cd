# Needs: nothing. Makes: what a run says in the terminal, before anything can be said; a user's --logger and -q go first.
TERMINAL = None
if MAIN and workflow.is_main_process:
    from functools import partial

    from profzoo.terminal import logger_takeover

    # For --list.
    workflow.list_rules = partial(logger_takeover.list_rules, workflow)

    TERMINAL = logger_takeover.take_over(workflow)
