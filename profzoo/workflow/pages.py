"""Names the inputs of figures and of the report, and describes the run for the report's page."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from profzoo import figures, tools
from profzoo.errors import ConfigError
from profzoo.tools.ncu.quantities import CHARTS, OCCUPANCY
from profzoo.workflow.comparison import Comparison
from profzoo.workflow.selection import Selection, Wildcards
from profzoo.workflow.tables import Tables


@dataclass(frozen=True)
class Pages:
    """Inputs of the rules that draw and write pages."""

    selection: Selection
    tables: Tables
    comparison: Comparison

    def figure_files(self) -> list[str]:
        """The figures that the chosen tools and the comparison have data for."""
        have = tools.abilities_of(self.selection.tools) | {*self.selection.provided}
        have |= {"roofline"} & {*self.tables.verdict_inputs()} | {*self.comparison.tables()}
        have |= {"layer_counters"} if have >= {"layers", "roofline"} else set()
        have |= {figures.GENERATING} if self.tables.generating() else set()
        have |= {*self.token_table()}
        # A waterfall is made of parts of the step.
        have -= set() if self.selection.provides("steps") else {figures.PARTS}
        names = [
            name for name in figures.list_drawable(have) if self.selection.can_make_tables(*tables_of_figure(name))
        ]
        return self.selection.makeable(f"<results>/figures/{name}.svg" for name in names)

    def all_tables(self, read_by_report: Iterable[Any]) -> list[str]:
        """Tables of all jobs of `all`, sorted: exports of cells, and what tables, figures and the report read.

        read_by_report: inputs of the report's rule.
        """
        files = [*self.tables.exports(), *map(str, read_by_report)]
        for read in (self.tables.inputs(), self.tables.layer_verdict_inputs(), self.tables.operator_verdict_inputs()):
            files += [path for paths in read.values() for path in paths]
        for name in map(Path, self.figure_files()):
            files += self.figure_inputs(SimpleNamespace(figure=name.stem)).values()
        return sorted({path for path in files if path.endswith(".csv")})

    def all_inputs(self, read_by_report: Iterable[Any], whole: bool) -> list[str]:
        """Files that the report and its figures read; whole: and those that `all` makes beside them.

        read_by_report: inputs of the report's rule.
        """
        drawn = (SimpleNamespace(figure=Path(name).stem) for name in self.figure_files())
        read = [path for one in drawn for path in self.figure_inputs(one).values()]
        return [*map(str, read_by_report), *read, *(self.tables.everything() if whole else [])]

    def comparison_figure_files(self) -> list[str]:
        """The figures of the comparison."""
        return [path for path in self.figure_files() if figures.all_figures()[Path(path).stem].compares]

    def figure_inputs(self, wildcards: Wildcards) -> dict[str, str]:
        """Tables of a figure by name, with the table that says where and when they were measured."""
        figure = figures.all_figures()[wildcards.figure]
        peaks = {"peaks": f"<results>/peaks/{self.selection.config['gpu']}.csv"}
        names = (figure.dated_by, *figure.inputs)
        return {name: peaks.get(name, f"<results>/tables/{name}.csv") for name in names}

    def figure_options(self, wildcards: Wildcards) -> dict[str, Any]:
        """Settings of the configuration that a figure depends on."""
        own: Mapping[str, Any] = self.selection.config["figures"]
        return {key: own[key] for key in figures.all_figures()[wildcards.figure].options}

    def kernel_inputs(self) -> dict[str, str | list[str]]:
        """Inputs of the page from traced cells: kernels, and a typical step."""
        if not self.selection.provides("kernels"):
            return {}
        return {"kernels": "<results>/tables/kernels.csv", "timelines": self.tables.traced_files("timeline")}

    def counter_inputs(self) -> dict[str, str | list[str]]:
        """Inputs of the page from counters and owning layers: rooflines, and module trees."""
        layers = self.tables.layer_tables()
        trees: dict[str, str | list[str]] = {"layers": layers[0]} if layers else {}
        known = self.tables.verdict_inputs()
        return trees | {name: path for name, path in known.items() if name in ("roofline", "peaks")}

    def chart_tables(self) -> dict[str, str]:
        """Tables of ncu's counters for the page, if ncu is chosen; those without metrics have no rows."""
        known = self.selection.provides(OCCUPANCY) and self.selection.can_make_tables(*CHARTS)
        return {name: f"<results>/tables/{name}.csv" for name in (CHARTS if known else ())}

    def verdict_table(self) -> dict[str, str]:
        """Tables of verdicts and of lines that wait for the page, if they can be made."""
        names = ("verdicts", "waits") if self.selection.can_make_tables("verdicts") else ()
        return {name: f"<results>/tables/{name}.csv" for name in names}

    def plan_table(self) -> dict[str, str]:
        """Table of plans for the page, if it can be made, and that of verdicts, of which it is made."""
        known = self.selection.can_make_tables("plans", "verdicts")
        return {"plans": "<results>/tables/plans.csv"} if known else {}

    def latency_table(self) -> dict[str, str]:
        """Table of percentiles of step times for the page, if it can be made."""
        return {"latency": "<results>/tables/latency.csv"} if self.selection.can_make_tables("latency") else {}

    def token_table(self) -> dict[str, str]:
        """Table of the parts of the time of tokens for the page, if a model generates any."""
        return dict(zip(("tokens",), self.tables.token_tables(), strict=False))

    def trials_and_digest(self) -> list[str]:
        """Table of trials, if it exists, with its digest: changed trials write the page again, but a page never runs
        trials."""
        path = self.selection.path("<results>/tables/trials.csv")
        return [str(path), hashlib.sha256(path.read_bytes()).hexdigest()] if path.exists() else []

    def perfetto_traces(self) -> list[str]:
        """Traces that `snakemake perfetto` makes."""
        return self.tables.traced_files("perfetto_trace")

    def required_traces(self) -> list[str]:
        """Traces that `snakemake perfetto` makes, at least one.

        Raises:
            ConfigError: there is none to make.
        """
        if files := self.perfetto_traces():
            return files
        raise ConfigError("no selected cell has a trace of nsys to write for Perfetto: choose cells and tool=nsys")

    def written_traces(self) -> list[str]:
        """Those of them that exist: new ones write the page again, but a page never makes them."""
        return [path for path in self.perfetto_traces() if self.selection.path(path).exists()]

    def line_tables(self) -> list[tuple[str, str]]:
        """Tables of source lines that exist, each with its digest; the page sums them up, and never makes one."""
        return [
            (str(path), hashlib.sha256(path.read_bytes()).hexdigest())
            for model, phase in self.selection.cells
            for path in sorted(self.selection.path(f"<results>/{model}").glob(f"{phase}.ncu-source.*.csv"))
        ]

    def describe_perfetto(self) -> dict[str, str]:
        """Facts about Perfetto for the page: its address, and the command that opens traces in it."""
        config = self.selection.config
        named = f" --config run={config['run']}" if config["run"] else ""
        return {"address": config["serve"]["perfetto"], "type": f"snakemake serve{named}"}


def tables_of_figure(name: str) -> set[str]:
    """Tables across the zoo that a figure shows."""
    one = figures.all_figures()[name]
    return {one.dated_by, *one.inputs} - {"peaks"}


def code_of_figures(files: Iterable[str]) -> list[Path]:
    """The modules that draw these figures."""
    return [figures.all_figures()[Path(file).stem].path for file in files]
