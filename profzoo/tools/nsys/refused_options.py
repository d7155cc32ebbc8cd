"""Options of `nsys profile` that `nsys.extra` may not hold beside those that the workflow gives itself, and why."""

OTHER_LAUNCHES = "traces other launches than the launches of the cell's steps"
# Why each is refused.
REFUSED = {
    "-p": f"{OTHER_LAUNCHES}; nsys.capture says what is recorded",
    "--nvtx-capture": f"{OTHER_LAUNCHES}; nsys.capture says what is recorded",
    "-Y": f"{OTHER_LAUNCHES}; nsys.delay says when recording begins",
    "--start-later": f"{OTHER_LAUNCHES}; nsys.delay says when recording begins",
    "--start-frame-index": f"{OTHER_LAUNCHES}; nsys.capture says what is recorded",
    "--duration-frames": f"{OTHER_LAUNCHES}; nsys.capture says what is recorded",
    "--hotkey-capture": f"{OTHER_LAUNCHES}; nsys.capture says what is recorded",
    "--cuda-trace-scope": f"{OTHER_LAUNCHES} where it is `system-wide`",
    "--nvtx-domain-include": "may leave out the ranges by which steps are found",
    "--nvtx-domain-exclude": "may leave out the ranges by which steps are found",
    "--kill": "may end the program before it has written the files that the workflow needs",
    "--wait": "may end the recording before all processes have",
    "-x": "may leave the recording open once the program has ended",
    "--stop-on-exit": "may leave the recording open once the program has ended",
    "-n": "may take from the program the variables that it needs",
    "--inherit-environment": "may take from the program the variables that it needs",
    "-e": "runs another program under nsys than under the other tools; let variables through by `environment`",
    "--env-var": "runs another program under nsys than under the other tools; let variables through by `environment`",
    "--command-file": "gives options that the workflow does not see; give them in nsys.extra",
    "-h": "records nothing",
    "--help": "records nothing",
}
