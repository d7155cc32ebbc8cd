"""Write docs/guides/verdicts.md: what each verdict means, how it is found, and what to do."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NotRequired, TypedDict

from profzoo.errors import ConfigError
from profzoo.io import strict_yaml
from profzoo.plans import recipes
from profzoo.report import glossary
from profzoo.verdicts.causes.noted_verdicts import DROPPED
from profzoo.verdicts.rules import rule_types, rules
from profzoo.verdicts.rules.rule_types import Advice, Bounds, Explanation, Rule

FILES = ("verdict_evidence.yaml",)
EVIDENCE_FILE = Path(__file__).with_name(FILES[0])
PAGE = PurePosixPath("guides/verdicts.md")
# Verdicts that no rule gives.
WITHOUT_RULES = (DROPPED,)
# Code within the words of an advice: calls, names of torch, settings with their values, and names with underscores.
CODE = re.compile(
    r"@?torch\.[\w.]+(?:\([^()]*\)| = \w+)?|\w*\.\w+\([^()]*\)|\b\w+\([^()]*=[^()]*\)|\b\w+=True\b|\b\w*_\w*\([^()]*\)"
    r"|\b[a-z_]+: (?:true|false|[a-z]*\d+)\b|[\w.]*_[\w.]*(?:=[\w:]+)?|\btable\[numbers\]"
)
CLOCKS = "Compare times at the same clock only, and look for what lowers it: heat, power, or another limit."
# What begins with a small letter in a sentence too.
UNCAPITALISED = ("torch has", "torch.", "cuDNN")
INTRODUCTION = """# What does this verdict mean, and what do I do?

After this page you know what a verdict says about your model, what it is based on, and what to change. `make docs`
writes this page from the rules that give verdicts; do not edit it.

A verdict names a bottleneck of one cell: a model in training or inference. It stands in `tables/verdicts.csv`, on the
page, and in the last lines of a run. Each verdict has an expected gain with an interval. Begin with the first verdict,
change one thing, and measure whether it helped ([Did it get faster?](faster.md)). `snakemake trials` does that for all
settings that verdicts and plans advise ([Try the advice](trials.md)). The column `source` of `tables/verdicts.csv` has
the literature behind each advice.

A gain is never larger than without the `share` of the step that the advice acts on (Amdahl's law).

Where no share is named, a finding is a verdict if the step is at least 5 % shorter without it, in a
[simulation](../how/simulation.md).

Three more words stand where verdicts do:

| word | meaning | what to do |
|---|---|---|
"""
ORDER = """## In which order verdicts stand

Verdicts are ordered by their gains. Where one explains another, it comes first, however much more the other gains:

| cause | comes before | if | because |
|---|---|---|---|
"""
ANY_CAUSE = "any other verdict"
WHEN = {
    "always": "both are verdicts on the cell",
    "prevented": "the cause prevents a CUDA graph of the step",
    "simulated": "in a simulation, mending the first takes half or more of what the remedy of the second saves",
}
RECIPES = """## Settings in a program of your own

The settings of plans and verdicts are words of profzoo. In your own program these lines of PyTorch do the same. For a
script, the last lines of a run, the column `recipe` of `tables/plans.csv` and the page name them instead of the
setting, with the lines of the script that they are about. What all settings need: compare some losses or outputs before
and after ([Faster, and right](faster.md#faster-and-right)).

| setting | line to write | where | look out for |
|---|---|---|---|
"""
# What stands for any value of a setting; and from how many lines on they do not fit into a table.
ANY_VALUES = {"workers": "N", "batch": "N", "compile": "MODE", "optimizer": "for_loop"}
MANY_LINES = 6
# Conditions on an operator, in words.
OF_OPERATORS = {
    rules.ROOF_SHARE: "the operator reaches {bound} {limit} of the CPU's measured roof",
    rules.CONVOLUTION: "it is a convolution",
    rules.PRODUCT: "it is a product of matrices, or made of such products",
}
OTHER_WORDS = {
    "nothing stands out": "Look at the table of layers for the largest ones, or try settings by `snakemake trials`.",
    "undecided": "Do what its next step says: most often, repeat the measurement with `repeats=5` on a quiet machine.",
    "faster with a setting": "Use the setting: it was measured.",
}


class Evidence(TypedDict):
    """How a verdict is told; page: the page of docs/ that says more."""

    told: str
    page: NotRequired[str]


class Group(TypedDict):
    """A section of the page; needs: what has to be measured."""

    group: str
    needs: str
    verdicts: Mapping[str, Evidence]


def write_verdicts_page(
    groups: Sequence[Group],
    known: Sequence[Rule],
    meanings: Mapping[str, str],
    explanations: Sequence[Explanation] = (),
) -> str:
    """Return the page in Markdown.

    Args:
        groups: content of verdict_evidence.yaml.
        explanations: which verdicts explain which, of rules.yaml.
        known: rules of verdicts.
        meanings: meaning of each verdict by its name, as on the report's page.

    Raises:
        ConfigError: the evidence of a verdict is missing, or names no verdict.
    """
    named = [name for group in groups for name in group["verdicts"]]
    verdicts = {*(rule["verdict"] for rule in known), *WITHOUT_RULES}
    if missing := sorted(verdicts - {*named}):
        raise ConfigError(f"{EVIDENCE_FILE.name}: {missing[0]} is missing: say under its group how it is found")
    if unknown := [name for name in named if name not in verdicts]:
        raise ConfigError(f"{EVIDENCE_FILE.name}: {unknown[0]} is not a verdict of rules.yaml: remove it")
    lines = [f"| {word} | {meanings[word]} | {advice} |" for word, advice in OTHER_WORDS.items()]
    lines += ["", ORDER + "\n".join(map(_describe_explanation, explanations))]
    for group in groups:
        lines += ["", f"## {group['group']}", "", f"What has to be measured: {group['needs']}.", ""]
        for name, evidence in group["verdicts"].items():
            chosen = [rule for rule in known if rule["verdict"] == name]
            lines += [f"### {name}", "", *_describe_verdict(meanings[name], evidence, chosen), ""]
    return INTRODUCTION + "\n".join([*lines, *_describe_recipes()]).rstrip("\n") + "\n"


def _describe_recipes() -> Iterator[str]:
    """Yield the lines of the table of recipes, and the code of those that are longer."""
    filled = []
    for one in recipes.load_recipes():
        if not one.setting:
            continue
        keys = [pattern.partition("=")[0] for pattern in one.patterns]
        words = [word.replace("*", ANY_VALUES.get(key, "")) for word, key in zip(one.patterns, keys, strict=True)]
        filled.append(one.fill(words))
    rows = [
        f"| `{one.setting}` | [`{one.short}`]({one.link}) | {one.where} | {CODE.sub(_as_code, one.caveat)} |"
        for one in filled
    ]
    yield RECIPES + "\n".join(rows)
    for one in filled:
        if len(one.lines.splitlines()) > MANY_LINES:
            yield from ("", f"`{one.setting}`, {one.where}:", "", "```python", one.lines, "```")


def _describe_explanation(one: Explanation) -> str:
    causes, explained = (", ".join(names) for names in (one.get("by", [ANY_CAUSE]), one["explains"]))
    return f"| {causes} | {explained} | {WHEN[one['when']]} | {one['because']} |"


def _describe_verdict(meaning: str, evidence: Evidence, chosen: Sequence[Rule]) -> list[str]:
    told = evidence["told"]
    if page := evidence.get("page"):
        title = PurePosixPath(page.partition("#")[0]).stem.replace("_", " ").capitalize()
        told = f"{told.rstrip('.')} ([{title}]({os.path.relpath(page, PAGE.parent)}))."
    lines = [meaning, "", f"*Evidence.* {told}", ""]
    advice = [(_describe_case(rule, one), _as_sentences(one["next"])) for rule in chosen for one in rule["advice"]]
    if len(advice) > 1:
        lines += ["*What to do*:", "", *(f"- *{case}.* {sentences}" for case, sentences in advice)]
    else:
        lines += [f"*What to do.* {advice[0][1] if advice else CLOCKS}"]
    return lines


def _describe_case(rule: Rule, advice: Advice) -> str:
    """Return the case in which a rule gives an advice, as the beginning of a sentence."""
    conditions = (_describe_condition(name, allowed) for name, allowed in advice.get("when", {}).items())
    case = " and ".join(words for words in conditions if words)
    first, rest = ("On a CPU, ", case) if rule["of"] == "cpu" else ("", case)
    words = f"if {rest}" if rest else "otherwise"
    return first + words if first else words[0].upper() + words[1:]


def _describe_condition(name: str, allowed: Sequence[Any] | Bounds) -> str:
    """Return a condition in words, which are empty where it always holds.

    >>> _describe_condition("precision", ["fp32", "tf32"]), _describe_condition("cpu_data_ns", {"below": 2e6})
    ('`precision` is fp32 or tf32', '`cpu_data_ns` is below 2 ms')
    >>> _describe_condition("graph", [True, False])
    ''
    """
    if isinstance(allowed, Mapping):
        bound, limit = ("below", allowed["below"]) if "below" in allowed else ("at least", allowed["at_least"])
        if name in OF_OPERATORS:
            return OF_OPERATORS[name].format(bound=bound, limit=f"{limit * 100:g} %")
        return f"`{name}` is {bound} {limit / 1e6:g} ms"
    if {*allowed} == {True, False}:
        return ""
    return f"`{name}` is {' or '.join(str(one).lower() for one in allowed)}"


def _as_sentences(words: str) -> str:
    """Return an advice as sentences in Markdown, one for each part between semicolons.

    >>> _as_sentences("load batches ahead (pin_memory: true); torch.compile helps too; call .detach()")
    'Load batches ahead (`pin_memory: true`). `torch.compile` helps too. Call `.detach()`.'
    """
    parts = [part if part.startswith(UNCAPITALISED) else part[0].upper() + part[1:] for part in words.split("; ")]
    return " ".join(f"{CODE.sub(_as_code, part)}." for part in parts)


def _as_code(match: re.Match[str]) -> str:
    return f"`{match[0].rstrip('.')}`{'.' if match[0].endswith('.') else ''}"


def main(path: Path) -> None:
    """Check the shipped rules, note that, and write their page to `path`; exit with one line on an error."""
    meanings = {word: entry["means"] for word, entry in glossary.load_meanings().items()}
    try:
        shipped = rules.check_rules(strict_yaml.load_yaml(rules.RULES_FILE))
        groups = strict_yaml.load_yaml(EVIDENCE_FILE)
        page = write_verdicts_page(groups, shipped["rules"], meanings, shipped["explanations"])
    except ConfigError as error:
        sys.exit(f"profzoo: error: {error}")
    path.write_text(page, encoding="utf-8")
    rule_types.note_checked()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
