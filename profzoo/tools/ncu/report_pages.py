"""Prints pages of a report as CSV: by ncu, or where there is none by NVIDIA's package ncu-report, in the same form.

    python -m profzoo.tools.ncu.report_pages REPORT OPTION ... > PAGE

OPTIONs are those of `ncu --import`. The package prints all digits, all units as base units, and no page of source.
"""

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from profzoo.errors import DataError
from profzoo.tools.ncu.command import INSTALL, PROGRAM

# Under this locale, numbers are the same on all machines.
LOCALE = {"LC_ALL": "C"}
PACKAGE = "ncu-report"
INSTALL_PACKAGE = f"install NVIDIA's package, which reads reports on any machine: `python -m pip install {PACKAGE}`"
AGAIN = "copy it again, or profile again"
OF_LAUNCH = ("ID", "Process ID", "Process Name", "Host Name")
RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
DETAILS = ("Section Name", "Metric Name", "Metric Unit", "Metric Value",
           "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")  # fmt: skip
SIZES = {"Block Size": "launch__block_dim_{}", "Grid Size": "launch__grid_dim_{}"}
CAPABILITY = "device__attribute_compute_capability_{}"
# Names of metrics that stand for several, which ncu does not print.
COLLECTIVE = ("breakdown:", "group:")
# Metrics whose instances are samples over time.
SAMPLED = re.compile(r"pmsampling:|(\w+\.)?Triage\w+\.|profiler__(pmsampler_ctxsw|timestamp)_")
# What ncu prints of the kinds of a rule's message, and of its speedup, by the package's numbers.
KINDS, SPEEDUPS = {1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}, {1: "local", 2: "global"}
# Links in a rule's message, as ncu prints them: one to a page of the web, and others to a place in the report.
LINKS = ((re.compile(r"@url:([^@]*?):(\w+://[^@]*)@"), r"\1 (\2)"),
         (re.compile(r"@(?:sass:[^@:]*|source:[^@]*:\d+|section:[^@:]*):([^@]*)@"), r"\1"))  # fmt: skip
THREE_DIGITS = re.compile(r"-?\d+\.\d{3}")


def print_page(report: str, words: Sequence[str], launch: int | None = None) -> str:
    """Return what `ncu --import` prints as CSV, with the ends of lines as they are.

    words: options that name the page. launch: number of one launch in the report, from 0; None for all launches.

    Raises:
        DataError: the report cannot be read, or neither ncu nor the package is there.
    """
    if not shutil.which(PROGRAM):
        return print_by_package(report, words, launch)
    command = [PROGRAM, "--import", report, "--csv", *words]
    if launch is not None:
        command += ["--launch-skip", str(launch), "--launch-count", "1"]
    answer = subprocess.run(command, capture_output=True, check=False, env=os.environ | LOCALE)
    # A line of source may be in any encoding.
    printed, said = (stream.decode("utf-8", "replace") for stream in (answer.stdout, answer.stderr))
    if answer.returncode:
        last = (said.strip() or printed.strip() or "it says nothing").splitlines()[-1]
        raise DataError(f"{report} cannot be printed by this ncu: {last[:200]}: take the ncu that wrote it")
    return printed


def print_by_package(report: str, words: Sequence[str], launch: int | None = None) -> str:
    """Return the page that the package makes of a report; the rest is as of `print_page`."""
    try:
        import ncu_report
    except ImportError:
        raise DataError(
            f"reading {report} needs {PROGRAM} or the package {PACKAGE}, and neither is there: {INSTALL}; "
            f"or {INSTALL_PACKAGE}"
        ) from None
    options = dict(zip(words[::2], words[1::2], strict=True))
    if options["--page"] == "source":
        raise DataError(f"{report}: only {PROGRAM} prints source lines, and it is not on PATH: {INSTALL}")
    require_end(report)
    actions = [action for part in ncu_report.load_report(report) for action in part]
    if not actions:
        raise DataError(f"{report} holds no launch that the package {PACKAGE} can read: {AGAIN}, or take a newer one")
    numbers = range(len(actions)) if launch is None else [launch]
    names = {"mangled": ncu_report.IAction.NameBase_MANGLED, "function": ncu_report.IAction.NameBase_FUNCTION}
    base = names.get(options.get("--print-kernel-base", ""), ncu_report.IAction.NameBase_DEMANGLED)
    chosen = {number: actions[number] for number in numbers}
    own = _describe_launches(chosen, base)
    rows = _details(chosen, own) if options["--page"] == "details" else _raw(chosen, own, options)
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return file.getvalue()


def require_end(report: str) -> None:
    """Check that a report goes on to its end, which the package does not: it reads the launches before a cut.

    A report is blocks behind each other: a header with its size before it, and as many bytes as the header says.

    Raises:
        DataError: it is cut off, or no report.
    """
    size = Path(report).stat().st_size
    with Path(report).open("rb") as file:
        whole = file.read(4) == b"NVR\0"
        file.seek(int.from_bytes(file.read(4), "little"), os.SEEK_CUR)
        while whole and file.tell() < size:
            length = int.from_bytes(file.read(4), "little")
            file.seek(_payload_size(header := file.read(length)), os.SEEK_CUR)
            whole = len(header) == length and file.tell() <= size
    if not whole:
        raise DataError(f"{report} is cut off or damaged: {AGAIN}")


def _payload_size(header: bytes) -> int:
    """Return the field with number 5 of a block's header (a message of Protocol Buffers); 0 where it has none."""
    stream = io.BytesIO(header)
    while stream.tell() < len(header):
        field, kind = divmod(_read_number(stream), 8)
        number = _read_number(stream) if kind in (0, 2) else {1: 8, 5: 4}.get(kind, len(header))
        if (field, kind) == (5, 0):
            return number
        stream.seek(number if kind else 0, os.SEEK_CUR)
    return 0


def _read_number(stream: io.BytesIO) -> int:
    """Read a number of seven bits a byte, the lowest first; all but the last byte have the highest bit."""
    value = shift = 0
    while byte := stream.read(1):
        value, shift = value | (byte[0] & 127) << shift, shift + 7
        if byte[0] < 128:
            break
    return value


def _describe_launches(actions: Mapping[int, Any], base: int) -> dict[int, dict[str, str]]:
    """Return what each launch is, by the columns before its metrics; launches of ranges have no sizes."""
    stacks = {number: _open_ranges(action) for number, action in actions.items()}
    ranges = [action.workload_type() == action.WorkloadType_RANGE for action in actions.values()]
    found = {}
    for number, action in actions.items():
        one = dict.fromkeys(OF_LAUNCH, "") | {"ID": str(number)}
        one |= {RANGES: stacks[number]} if any(stacks.values()) else {}
        one |= {"Kernel Name": action.name(base), "Context": _value(action, "launch__context_id")}
        one |= {"Stream": "n/a" if all(ranges) else _value(action, "launch__stream_id")}
        for column, name in SIZES.items() if not all(ranges) else ():
            one[column] = f"({', '.join(_value(action, name.format(axis)) or '0' for axis in 'xyz')})"
        one |= {"Device": _value(action, "launch__device_id")}
        one |= {"CC": ".".join(_value(action, CAPABILITY.format(part)) for part in ("major", "minor"))}
        found[number] = one
    return found


def _open_ranges(action: Any) -> str:
    """Return the push/pop ranges that were open, of each domain the outermost first, as ncu prints them."""
    state = action.nvtx_state()
    domains = [state[number] for number in state] if state else []
    opened = [f"{domain.name()}:{name}" for domain in domains for name in domain.push_pop_ranges()]
    return "0 " + "".join(f' "{name}:none:none:none:none:none:none" ' for name in opened) if opened else ""


def _raw(
    actions: Mapping[int, Any], launches: Mapping[int, Mapping[str, str]], options: Mapping[str, str]
) -> Iterator[list[str]]:
    """Yield heading, units and rows of the raw page."""
    asked = options.get("--metrics")
    names = sorted({name for one in actions.values() for name in one.metric_names() if not name.startswith(COLLECTIVE)})
    names = [name for name in names if asked is None or name in asked.split(",")]
    leading = list(dict.fromkeys(name for one in launches.values() for name in one))
    yield [*leading, *names]
    found = (next(filter(None, (one.metric_by_name(name) for one in actions.values()))) for name in names)
    yield [*("" for _ in leading), *(metric.unit() for metric in found)]
    instances = options.get("--print-metric-instances") == "details"
    for number, action in actions.items():
        values = (_value(action, name, instances) for name in names)
        yield [*(launches[number][name] for name in leading), *values]


def _details(actions: Mapping[int, Any], launches: Mapping[int, Mapping[str, str]]) -> Iterator[list[str]]:
    """Yield heading and rows of the details page: of each section its metrics, and what its rules say."""
    yield [*(leading := [name for name in next(iter(launches.values())) if name != RANGES]), *DETAILS]
    for number, action in actions.items():
        own = [launches[number][name] for name in leading]
        for section in sorted(action.sections(), key=lambda one: one.order()):
            for metric in section.header_metrics():
                if value := _format(metric):
                    yield [*own, section.name(), metric.label() or metric.name(), metric.unit(), value, *[""] * 5]
            for rule in section.rules():
                said: Mapping[str, Any] = rule.rule_message() if rule.has_rule_message() else {"type": 0}
                if said["type"] in KINDS:
                    gain: Mapping[str, Any] = rule.speedup_estimation() if rule.has_speedup_estimation() else {}
                    words = [rule.rule_identifier(), KINDS[said["type"]], _shorten_links(said["message"])]
                    speedup = [SPEEDUPS.get(gain.get("type", 0), ""), _digits(gain.get("speedup"))]
                    yield [*own, section.identifier(), "", "", "", *words, *speedup]


def _shorten_links(message: str) -> str:
    """Return a rule's message as ncu prints it.

    >>> _shorten_links("See @url:the guide:https://a.b/c#d@ and @section:LaunchStats:Launch Statistics@.")
    'See the guide (https://a.b/c#d) and Launch Statistics.'
    """
    for link, shown in LINKS:
        message = link.sub(shown, message)
    return message


def _value(action: Any, name: str, instances: bool = False) -> str:
    """Return the value of a metric of a launch, empty where it has none; instances: with those that it is made of."""
    metric = action.metric_by_name(name)
    if metric is None:
        return ""
    value = _format(metric)
    if not instances or not metric.num_instances() or not metric.has_correlation_ids():
        return value
    ids = metric.correlation_ids()
    labels = [ids.value(place) for place in range(metric.num_instances())]
    if SAMPLED.match(name):
        labels = [f"{time} (+{time - labels[0]})" for time in labels]
    several = "; ".join(f"{label}: {_digits(metric.value(place))}" for place, label in enumerate(labels))
    return f"{value} ({several})".lstrip()


def _format(metric: Any) -> str:
    return _digits(metric.value()) if metric.has_value() else ""


def _digits(value: object) -> str:
    """Return a number with all its digits, and never with three behind the point: those may be thousands elsewhere.

    >>> _digits(17344.0), _digits(0.125), _digits(3), _digits("all")
    ('17344', '0.1250', '3', 'all')
    """
    if not isinstance(value, float):
        return "" if value is None else str(value)
    text = str(int(value)) if value.is_integer() else repr(value)
    return f"{text}0" if THREE_DIGITS.fullmatch(text) else text


def main(words: Sequence[str]) -> int:
    """Print the page that a command line asks for; returns the exit code."""
    report, *options = words
    if shutil.which(PROGRAM):
        os.execvpe(PROGRAM, [PROGRAM, "--import", report, "--csv", *options], os.environ | LOCALE)
    try:
        sys.stdout.write(print_by_package(report, options))
    except DataError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
