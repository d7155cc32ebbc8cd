# Needs: nothing. Makes: what a run says in the terminal, before anything can be said; a user's --logger and -q go first.
TERMINAL = None
if MAIN and workflow.is_main_process:
    from functools import partial

    from profzoo.terminal import starting

    # For --list.
    workflow.list_rules = partial(starting.list_rules, workflow)

    TERMINAL = starting.take_over(workflow)
