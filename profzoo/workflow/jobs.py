"""Writes the texts that collecting jobs go by: each is all that a job is collected again for, as JSON."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from profzoo.cell import data_files, settings
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.config_types import Config
from profzoo.collect import environment
from profzoo.compare import sides
from profzoo.machine import job_limits
from profzoo.tools import BASELINE
from profzoo.workflow.selection import Selection, Wildcards
from profzoo.workflow.user_errors import run_checked


@dataclass(frozen=True)
class Jobs:
    """The texts of jobs; functions of Snakemake's wildcards are for `params` of rules."""

    selection: Selection

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.selection.config

    @cached_property
    def surroundings(self) -> dict[str, Any]:
        """What every collecting job goes by: names of variables that its program sees besides those that are known, and
        the values of those that change what is measured, where there are any."""
        names = self.config["environment"]
        found = environment.planned_variables(names)
        return {"environment": names} | ({"variables": found} if found else {})

    @property
    def repeats(self) -> dict[str, int]:
        """Processes of each cell without a profiler, in a job's text where there are several."""
        repeats = self.config["repeats"] or 1
        return {"repeats": repeats} if repeats > 1 else {}

    def cell_settings(self, wildcards: Wildcards, tool: str, phase: str | None = None) -> CellSettings:
        """The settings of a job's cell under a tool; the phase is that of the wildcards unless it is given."""
        return run_checked(settings.resolve_cell, wildcards.model, phase or wildcards.phase, tool, self.config)

    def job_text(self, tool: str, cell: CellSettings, **more: Any) -> str:
        """All that a collecting job goes by, as one JSON text with sorted keys."""
        job = {"tool": tool, "cell": cell, **self.surroundings}
        job |= run_checked(data_files.summarise_data_set, cell) | run_checked(data_files.summarise_model_files, cell)
        return json.dumps(job | more, sort_keys=True)

    def describe_by(self, tool: str, phase: str | None = None, **more: Any) -> Callable[[Wildcards], str]:
        """A params function: the text of the cell under a tool."""
        return lambda wildcards: self.job_text(tool, self.cell_settings(wildcards, tool, phase), **more)

    def describe_training(self, wildcards: Wildcards) -> str:
        """The text of the training whose weights inference loads: on one GPU, and no longer than it has to be."""
        one = {"gpus": 1, "nodes": 1}
        alone = {
            part: {
                name: {key: changes[key] for key in changes if key not in one}
                for name, changes in self.config[part].items()
            }
            for part in ("settings", "variants")
        }
        shortest: Config = {
            **self.config,
            "settings": alone["settings"],
            "variants": alone["variants"],
            "gpus": 1,
            "nodes": 1,
            BASELINE: {**self.config[BASELINE], "window": 1},
        }
        return self.job_text("train", run_checked(settings.resolve_cell, wildcards.model, "train", BASELINE, shortest))

    def describe_turns(self, wildcards: Wildcards) -> str:
        """The text of a cell of which all sides of a comparison run in turn."""
        known = self.selection.sides
        cells = {
            side.name: run_checked(
                settings.resolve_cell, side.of(wildcards.model), wildcards.phase, BASELINE, self.config
            )
            for side in known
        }
        baseline = cells[known[0].name]
        seed = f"{baseline['seed']} {wildcards.model} {wildcards.phase} {sides.name_sides(known)}"
        order = sides.interleave(list(cells), self.config["repeats"] or sides.REPEATS, seed)
        return self.job_text(BASELINE, baseline, sides=cells, order=order, order_seed=seed)

    def describe_trials(self, wildcards: Wildcards) -> str:
        """The text of a cell on which settings are tried; it names no inputs, for Snakemake to see when it changes."""
        # It takes tables, which take long to load.
        from profzoo.trials import candidate_settings

        known, refused = run_checked(candidate_settings.candidate_words, wildcards.model, wildcards.phase, self.config)
        expected = self.expected_gains()
        # By sorted keys the panel's order would be lost.
        job = {
            "candidates": known,
            "order": list(known),
            "refused": refused,
            "expected": expected.replace("<results>", self.selection.results) if isinstance(expected, str) else "",
            "budget_s": run_checked(job_limits.parse_seconds, self.config["trials"]["budget"], "trials.budget"),
            "repeats": self.config["trials"]["repeats"],
            "most": self.config["trials"]["max_settings"],
        }
        return self.job_text(BASELINE, self.cell_settings(wildcards, BASELINE), trials=job)

    def describe_peaks(self) -> str:
        """The text of the measurement of what the GPU can do at most."""
        return json.dumps({"tool": "peaks", "cell": {"device": self.config["device"]}, **self.surroundings})

    def batches(self, wildcards: Wildcards) -> dict[str, int]:
        """Samples in a batch of each cell: advice names twice of them."""
        known = {
            cell: run_checked(settings.resolve_cell, *cell, BASELINE, self.config) for cell in self.selection.cells
        }
        return {f"{model} {phase}": own["batch"] for (model, phase), own in known.items()}

    def expected_gains(self) -> str | list[str]:
        """What the advice of verdicts is expected to gain, where there is a trace to judge by, or was elsewhere."""
        known = self.selection.provides("program") or self.config["trials"]["verdicts"]
        return "<results>/tables/trials.expected.json" if known else []

    def weights(self, wildcards: Wildcards) -> str | list[str]:
        """What inference loads: the weights that a training left, where the model has one."""
        return self.weights_of(wildcards.model, wildcards.get("phase", "inference"))

    def weights_of(self, model: str, phase: str) -> str | list[str]:
        """The weights that a cell loads, where it loads any."""
        trained = run_checked(settings.weights_source, model, phase, self.config)
        return f"<results>/{trained}/weights.pt" if trained else []

    def weights_of_sides(self, wildcards: Wildcards) -> list[str]:
        """What inference loads on each side of a comparison, in their order."""
        found = [self.weights_of(side.of(wildcards.model), wildcards.phase) for side in self.selection.sides]
        return [path for path in found if isinstance(path, str)]
