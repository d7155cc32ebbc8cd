"""Replaces metric names in a command by the names that the GPU uses."""

from collections.abc import Collection, Sequence

from profzoo.tools.ncu.quantities import metrics_to_ask

METRICS = "--metrics"


def translate_metrics(command: Sequence[str], capabilities: Collection[float]) -> list[str]:
    """Return the command with metric names for GPUs of these compute capabilities; unchanged if none is known.

    >>> translate_metrics(["ncu", "--metrics", "dram__bytes_read.sum", "run"], [12.0])
    ['ncu', '--metrics', 'dram__bytes_op_read.sum,dram__bytes_op_write.sum', 'run']
    """
    words = list(command)
    for place, word in enumerate(words[:-1]):
        if word == METRICS and capabilities:
            names = words[place + 1].split(",")
            # GPUs that differ are each asked by the names that any of them has.
            found = [name for capability in sorted(capabilities) for name in metrics_to_ask(names, capability)]
            words[place + 1] = ",".join(dict.fromkeys(found))
    return words
