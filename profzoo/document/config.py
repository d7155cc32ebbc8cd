"""Write config/README.md from the schema: every key with type, default and description."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profzoo import schema, tools
from profzoo.errors import ConfigError
from profzoo.json_types import JsonSchema

INTRODUCTION = """# Configuration

Generated from `profzoo/schema.yaml` by `make docs`; do not edit.

Set keys in `config/config.yaml`, in a file given with `--configfile`, or on the command line: `snakemake all --config
tool=nsys batch=4 ncu='{{set: roofline}}'`. Lists may be comma-separated strings there. Keys with a dot are nested:
`ncu.set` is `set` under `ncu`. Whatever does not fit ends in one line that names the key, the value and the nearest
valid one, before any job runs.

A cell's settings come, the later over the earlier, from: the defaults below; the model's file, for the chosen workload;
the top level of the configuration; `settings` of the model; the variant.

Names of models, variants, section sets and GPUs are made alike:
{name}.
No model is named like a folder under `results/`: `tables`, `figures`, `logs`, `peaks`, `benchmarks`.

Values on the command line have the types that they have in a file: `{{train: false}}` is no text. Snakemake drops
quotes there, so a number that is to be a text takes two pairs of them:
`--config "data={{arguments: {{year: '\\"2012\\"'}}}}"`.

Cores, GPUs, memory and partitions are no matter of configuration but of profiles: see `profiles/`.
"""

MODELS = """
## Models of your own

A file in `models/`, or any importable module named in `models` or `settings`, is a model when it declares `WORKLOADS`
and defines `build(shape)` and `sample(shape, generator)`; the README has an example of ten lines. Declarations are
literals, so that they can be read without importing torch:

| name | holds |
|---|---|
| `WORKLOADS` | by workload (`trimmed`, `reference`) and phase: `batch`, and shape parameters |
| `SHAPE` | shape parameters of every workload; each is a setting of the model |
| `GROUPS` | groups that the model is selected by |
| `SOURCE`, `PARAMETERS` | where the architecture is published, and how many parameters it has |
| `DIFFERENCE` | why the network has another number, where it has |

A file that cannot be used costs its own cells alone: `models: all` leaves it out and says so, and asking for it ends in
one line. A model may declare one workload or phase only; those are its cells.

Functions that it may define besides, each with its default, are listed in `profzoo/harness/interface.py`: `loss`,
`optimizer`, `adapt`, `collate`, `transfer`, `infer`, `compiled`, and for training steps of its own `others`,
`optimizers` and `training_step` (`models/srgan.py`). A module of the network that has a method `prepare` has it called
after its weights were moved or loaded (`models/lstm.py`).

```yaml
models: [mine]
settings:
  mine: {module: my_package.my_model, batch: 4}
```
"""


def list_keys(part: JsonSchema, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield key, type, default and description of each key; nested keys are joined by dots.

    Raises:
        ConfigError: one has no description, or no default.
    """
    for key, value in part["properties"].items():
        name = f"{prefix}{key}"
        nested = "properties" in value
        for needed in ("description", *(() if nested else ("default",))):
            if needed not in value:
                raise ConfigError(f"the schema's key {name} has no {needed}: add one where the key is")
        kind = (
            " or ".join(f"`{schema.format_choice(item)}`" for item in value["enum"])
            if "enum" in value
            else _format_type(value)
        )
        yield f"`{name}`", kind, "" if nested else _format_default(value["default"]), value["description"]
        if nested:
            yield from list_keys(value, f"{name}.")


def write_config_page(rules: JsonSchema) -> str:
    """Return the page in Markdown."""
    table = ["| key | type | default | what it does |", "|---|---|---|---|"]
    table += [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in list_keys(rules)]
    sets = [line for tool in tools.with_setting("sets") for line in _list_sets(tool, rules["properties"][tool])]
    return "\n".join([INTRODUCTION.format(name=schema.describe_form()), *table, *sets, MODELS])


def _list_sets(tool: str, rules: JsonSchema) -> Iterator[str]:
    """Lines of the table of a tool's section sets; rules: its part of the schema."""
    yield from ("", f"## Section sets of {tool}", "", "| set | collects |", "|---|---|")
    for name, chosen in rules["properties"]["sets"]["default"].items():
        what = [f"{key} {', '.join(f'`{item}`' for item in _list_values(value))}" for key, value in chosen.items()]
        yield f"| `{name}` | {'; '.join(what)} |"


def _list_values(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _format_default(value: Any) -> str:
    """Format a default for the table; a mapping of named entries is shown by its names."""
    if isinstance(value, dict) and value:
        return ", ".join(f"`{name}`" for name in value)
    if isinstance(value, list) and len(value) > 4:
        return ", ".join(f"`{item}`" for item in value)
    return f"`{json.dumps(value)}`"


def _format_type(value: JsonSchema) -> str:
    kinds = value["type"] if isinstance(value["type"], list) else [value["type"]]
    if "array" in kinds and "enum" in value.get("items", {}):
        return "list of " + ", ".join(f"`{item}`" for item in value["items"]["enum"])
    least = f"from {value['minimum']}" if "minimum" in value else f"above {value.get('exclusiveMinimum')},"
    numbers = f" {least} to {value['maximum']:,}" if "maximum" in value else ""
    return " or ".join(f"{kind}{numbers}" if kind in ("integer", "number") else kind for kind in kinds)


def main(path: Path) -> None:
    """Write the page of the schema; a gap in the schema ends in a one-line error."""
    try:
        path.write_text(write_config_page(schema.load_schema()), encoding="utf-8")
    except ConfigError as error:
        sys.exit(f"profzoo: error: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
