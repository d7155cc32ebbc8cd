"""Writes the texts of collecting jobs: JSON with everything whose change runs the job again."""

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
from profzoo.range_names import IMPORTED
from profzoo.tools import BASELINE
from profzoo.workflow.selection import Selection, Wildcards
from profzoo.workflow.user_errors import run_checked

# The value of `repeats` by which processes are repeated until their times are known to the margin, or decide.
UNTIL_DECIDED = "auto"


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
        """Part of every job text: names of further environment variables that the program sees, and the values of
        variables that change measurements, if there are any."""
        names = self.config["environment"]
        found = environment.planned_variables(names)
        return {"environment": names} | ({"variables": found} if found else {})

    @property
    def repeats(self) -> dict[str, Any]:
        """Part of a job text: number of unprofiled processes per cell, if there are several."""
        if self.config["repeats"] == UNTIL_DECIDED:
            return {"repeats": 1, "most_rounds": sides.MOST_ROUNDS, **self.started}
        repeats = self.fixed_repeats or 1
        return {"repeats": repeats, **self.started} if repeats > 1 else {}

    @property
    def fixed_repeats(self) -> int | None:
        """Configured number of processes; None if there is none, or if processes are repeated until they decide."""
        return repeats if isinstance(repeats := self.config["repeats"], int) else None

    @property
    def started(self) -> dict[str, bool]:
        """Part of a job text of several processes: whether each starts by itself; results without it stay valid."""
        return {} if self.config["fork"] else {"fork": False}

    def cell_settings(self, wildcards: Wildcards, tool: str, phase: str | None = None) -> CellSettings:
        """Settings of a job's cell under a tool; phase: by default the phase in the wildcards."""
        return run_checked(settings.resolve_cell, wildcards.model, phase or wildcards.phase, tool, self.config)

    def job_text(self, tool: str, cell: CellSettings, **more: Any) -> str:
        """Everything that a collecting job depends on, as one JSON text with sorted keys."""
        job = {"tool": tool, "cell": cell, **self.surroundings}
        job |= run_checked(data_files.summarise_data_set, cell) | run_checked(data_files.summarise_model_files, cell)
        return json.dumps(job | more, sort_keys=True)

    def describe_by(self, tool: str, phase: str | None = None, **more: Any) -> Callable[[Wildcards], str]:
        """Make a params function that returns the job text of a cell under a tool."""
        return lambda wildcards: self.job_text(tool, self.cell_settings(wildcards, tool, phase), **more)

    def describe_training(self, wildcards: Wildcards) -> str:
        """Job text of the training whose weights inference loads: on one GPU, with as few steps as possible."""
        one = {"gpus", "nodes", "parallel"}
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
            "parallel": "ddp",
            BASELINE: {**self.config[BASELINE], "window": 1},
        }
        return self.job_text("train", run_checked(settings.resolve_cell, wildcards.model, "train", BASELINE, shortest))

    def describe_turns(self, wildcards: Wildcards) -> str:
        """Job text of a cell whose sides of a comparison run in turn."""
        known = self.selection.sides
        cells = {
            side.name: run_checked(
                settings.resolve_cell, side.of(wildcards.model), wildcards.phase, BASELINE, self.config
            )
            for side in known
        }
        baseline = cells[known[0].name]
        seed = f"{baseline['seed']} {wildcards.model} {wildcards.phase} {sides.name_sides(known)}"
        order = sides.interleave(list(cells), self.fixed_repeats or sides.GIVEN, seed)
        more = {} if self.fixed_repeats else {"most_rounds": sides.MOST_ROUNDS}
        return self.job_text(BASELINE, baseline, sides=cells, order=order, order_seed=seed, **more, **self.started)

    def describe_trials(self, wildcards: Wildcards) -> str:
        """Job text of the trials on a cell; it names no input files, so that Snakemake notices a change of it."""
        # Imported here: the code of tables takes long to load.
        from profzoo.trials import candidate_settings

        known, refused = run_checked(candidate_settings.candidate_words, wildcards.model, wildcards.phase, self.config)
        expected = self.expected_gains()
        # Sorted keys would lose the order of the candidates.
        job = {
            "candidates": known,
            "order": list(known),
            "refused": refused,
            "expected": expected.replace("<results>", self.selection.results) if isinstance(expected, str) else "",
            "budget_s": run_checked(job_limits.parse_seconds, self.config["trials"]["budget"], "trials.budget"),
            "repeats": self.config["trials"]["repeats"],
            "most": self.config["trials"]["max_settings"],
        }
        return self.job_text(BASELINE, self.cell_settings(wildcards, BASELINE), trials=job, **self.started)

    def describe_peaks(self) -> str:
        """Job text of the measurement of the GPU's peaks."""
        return json.dumps({"tool": "peaks", "cell": {"device": self.config["device"]}, **self.surroundings})

    def describe_links(self, wildcards: Wildcards) -> str:
        """Job text of the measurement of the links between GPUs: so many on each of so many nodes."""
        cell = {"device": self.config["device"], "gpus": int(wildcards.gpus), "nodes": int(wildcards.nodes)}
        return json.dumps({"tool": "links", "cell": cell, **self.surroundings})

    def batches(self, wildcards: Wildcards) -> dict[str, int]:
        """Samples per batch of each cell; advice names twice this number."""
        cells = [cell for cell in self.selection.cells if cell[1] != IMPORTED]
        known = {cell: run_checked(settings.resolve_cell, *cell, BASELINE, self.config) for cell in cells}
        return {f"{model} {phase}": own["batch"] for (model, phase), own in known.items()}

    def expected_gains(self) -> str | list[str]:
        """File of the expected gains of plans, if there is a trace here or a configured table from elsewhere."""
        known = self.selection.provides("program") or self.config["trials"]["plans"]
        return "<results>/tables/trials.expected.json" if known else []

    def weights(self, wildcards: Wildcards) -> str | list[str]:
        """Weights that inference loads, from the model's training; empty if the model has no training."""
        return self.weights_of(wildcards.model, wildcards.get("phase", "inference"))

    def weights_of(self, model: str, phase: str) -> str | list[str]:
        """Weights that a cell loads; empty if it loads none."""
        trained = run_checked(settings.weights_source, model, phase, self.config)
        return f"<results>/{trained}/weights.pt" if trained else []

    def weights_of_sides(self, wildcards: Wildcards) -> list[str]:
        """Weights that inference loads on each side of a comparison, in the order of the sides."""
        found = [self.weights_of(side.of(wildcards.model), wildcards.phase) for side in self.selection.sides]
        return [path for path in found if isinstance(path, str)]
