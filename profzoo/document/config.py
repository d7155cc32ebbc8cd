"""Write config/README.md from the schema: every key with type, default and description."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profzoo import tools
from profzoo.cell import schema
from profzoo.errors import ConfigError
from profzoo.json_types import JsonSchema

INTRODUCTION = """# Configuration

Here you find every setting, with its type, its default and what it does.

Generated from `profzoo/cell/schema.yaml` by `make docs`; do not edit.

Set keys in `config/config.yaml`, in a file given with `--configfile`, or on the command line: `snakemake all --config
tool=nsys batch=4 ncu='{{set: roofline}}'`. Lists may be comma-separated strings there. Keys with a dot are nested:
`ncu.set` is `set` under `ncu`. An invalid value ends the run with one line before any job. The line names the key, the
value and the nearest valid value.

A cell's settings come from these sources. If several of them have a setting, the last one in this list counts:

1. the defaults below
2. the model's file, for the chosen workload
3. the top level of the configuration
4. `settings` of the model
5. the variant

Names of models, variants, section sets and GPUs have the same form:
{name}.
No model has the name of a folder under `results/`: `tables`, `figures`, `logs`, `peaks`, `benchmarks`.

Values on the command line have the same types as in a file: `{{train: false}}` is not a text. Snakemake drops quotes
there, so a text that looks like a number needs two pairs of quotes:
`--config "data={{arguments: {{year: '\\"2012\\"'}}}}"`.

Cores, GPUs, memory and partitions belong to profiles, not to the configuration: see `profiles/`.
"""

MODELS = """
## Models of your own

A model is a file in `models/`, or any importable module that `models` or `settings` names. It declares `WORKLOADS` and
defines `build(shape)` and `sample(shape, generator)`. The README has an example of ten lines. Declarations are
literals, so that they can be read without importing torch:

| name | content |
|---|---|
| `WORKLOADS` | `batch` and shape parameters, by workload and phase; `**` takes mappings from above |
| `SHAPE` | shape parameters of every workload; each is a setting of the model |
| `GROUPS` | groups by which the model can be selected |
| `SOURCE`, `PARAMETERS` | publication of the architecture, and its published number of parameters |
| `DIFFERENCE` | reason if the network has another number of parameters |
| `REFERENCE` | `parameters` and `operations` of the original of `reference`, and the `difference` |
| `FILES` | files that `build` or `dataset` reads, as patterns relative to the folder of the model's file |

A file that cannot be used affects only its own cells. `models: all` leaves it out and says so; if the model is named by
itself, the run ends with one line. A model may declare only one workload or phase; it then has only these cells.

`profzoo/harness/interface.py` lists further functions that a model may define, each with its default: `dataset`,
`loss`, `optimizer`, `adapt`, `collate`, `transfer`, `infer`, `compiled`. Models with training steps of their own define
`others`, `optimizers` and `training_step` (`models/srgan.py`). If a module of the network has a method `prepare`
without arguments, it is called after the module's weights were moved or loaded (`models/lstm.py`).

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
        lists = {key: value if isinstance(value, list) else [value] for key, value in chosen.items()}
        what = [f"{key} {', '.join(f'`{item}`' for item in items)}" for key, items in lists.items()]
        yield f"| `{name}` | {'; '.join(what)} |"


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
