"""Says what settings change, and renders the lines of PyTorch that do the same in a program of one's own."""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo.io import strict_yaml

if TYPE_CHECKING:
    from profzoo.cell.job_types import MadeObject

# Read when profzoo/plans runs, so that a change of it makes plans again.
FILES = ("recipes.yaml",)
RECIPES_FILE = Path(__file__).with_name(FILES[0])
# What stands where a script's own optimizer and device are not known.
OPTIMIZER, DEVICE = "Adam", "cuda"
NAMED_OPTIMIZER, NAMED_DEVICE = re.compile(r"torch\.optim\.(\w+)"), re.compile(r'torch\.autocast\("(\w+)"')
# Between the short forms of several recipes.
BETWEEN = "; "
# The most lines that are named as the place of a recipe.
NAMED = 3


@dataclass(frozen=True)
class Recipe:
    """What some settings are in a program of one's own; fields are keys of recipes.yaml, which says what they hold."""

    short: str
    lines: str
    at: str
    where: str
    caveat: str
    link: str
    setting: str = ""
    verdict: str = ""
    changes: str = ""

    @property
    def patterns(self) -> list[str]:
        """The words that it is about, with `*` for any value."""
        return self.setting.split()

    def choose_words(self, words: Sequence[str]) -> list[str]:
        """Return the words that the recipe is about; empty unless each of its patterns fits one."""
        found = [next((word for word in words if fnmatchcase(word, pattern)), "") for pattern in self.patterns]
        return found if all(found) else []

    def fill(self, words: Sequence[str], optimizer: str = OPTIMIZER, device: str = DEVICE) -> "Recipe":
        """Return the recipe with the values of these words, of an optimizer of this class."""
        values = dict(word.split("=", 1) for word in words) | {"name": optimizer, "device": device}
        texts = {field.name: getattr(self, field.name).format(**values) for field in fields(self)}
        return Recipe(**texts | {"setting": " ".join(words), "lines": texts["lines"].rstrip("\n")})


@functools.cache
def load_recipes() -> tuple[Recipe, ...]:
    """Return the declared recipes, in their order."""
    return tuple(Recipe(**entry) for entry in strict_yaml.load_yaml(RECIPES_FILE))


def describe_changes(words: str) -> str:
    """Say what settings change.

    >>> describe_changes("graph=true precision=bf16")
    'launch the whole step as one CUDA graph; compute in bf16 where autocast does'
    >>> describe_changes("workers=4 threads=2")
    'load batches in 4 worker processes; set threads to 2'
    """
    return "; ".join(map(_describe, words.split()))


def _describe(word: str) -> str:
    known = (one for one in load_recipes() if one.changes and one.choose_words([word]))
    key, _, value = word.partition("=")
    return next((one.fill([word]).changes for one in known), f"set {key} to {value}")


def find_verdict_recipe(verdict: str) -> Recipe | None:
    """Return the lines that a verdict on written code advises; None for other verdicts.

    >>> find_verdict_recipe("unfused softmax").short, find_verdict_recipe("launch-bound")
    ('torch.nn.functional.softmax(scores, dim=-1)', None)
    """
    return next((one.fill([]) for one in load_recipes() if one.verdict == verdict), None)


# A line, or lines, of a Python file.
PLACE = re.compile(r"(?<![\w./-])[\w./-]+\.py:\d+(?:-\d+)?")
NOT_OWN = ("torch/", "profzoo/")


def find_own_line(says: str) -> str:
    """Return the first line of the user's own files that a sentence names, with a colon behind it.

    >>> find_own_line("* (Linear, torch/nn/modules/linear.py:130), Block (a.py:2-6) runs exp"), find_own_line("")
    ('a.py:2-6: ', '')
    """
    places = (found[0] for found in PLACE.finditer(says))
    return next((f"{place}: " for place in places if not place.startswith(NOT_OWN)), "")


def list_recipes(words: str, optimizer: str = OPTIMIZER, device: str = DEVICE) -> list[Recipe]:
    """Return the recipes of settings, filled in; settings that only profzoo has are left out.

    words: settings separated by spaces. optimizer: class of the program's optimizer. device: type of its device.

    >>> [one.short for one in list_recipes("optimizer=fused workers=4 pin_memory=true", "SGD")]
    ['torch.optim.SGD(..., fused=True)', 'DataLoader(..., num_workers=4, pin_memory=True)']
    """
    left, found = words.split(), dict[str, Recipe]()
    for one in load_recipes():
        if own := one.choose_words(left):
            left = [word for word in left if word not in own]
            found[own[0]] = one.fill(own, optimizer, device)
    return [found[word] for word in words.split() if word in found]


def format_recipes(words: str, made: "Sequence[MadeObject]" = (), device: str = DEVICE) -> str:
    """Return the short forms of the recipes of settings, each behind its place in the script where that is known.

    made: where a script makes its objects, as its sidecar says. device: type of its device.

    >>> loader = {"kind": "loader", "name": "DataLoader", "file": "train.py", "line": 31}
    >>> format_recipes("workers=4 precision=tf32", [loader])
    'train.py:31: DataLoader(..., num_workers=4); torch.set_float32_matmul_precision("high")'
    """
    optimizer = next((one["name"] for one in made if one["kind"] == "optimizer" and one["name"]), OPTIMIZER)
    return BETWEEN.join(_behind_place(one, made) for one in list_recipes(words, optimizer, device))


def explain_recipes(words: str, short: str) -> list[Recipe]:
    """Return the recipes of settings, with the optimizer and device of their short forms; none without such a form.

    short: what `format_recipes` returned.
    """
    named, on = NAMED_OPTIMIZER.search(short), NAMED_DEVICE.search(short)
    return list_recipes(words, named[1] if named else OPTIMIZER, on[1] if on else DEVICE) if short else []


def _behind_place(recipe: Recipe, made: "Sequence[MadeObject]") -> str:
    places = ", ".join(list(_name_places(recipe.at, made))[:NAMED])
    return f"{places}: {recipe.short}" if places else recipe.short


def _name_places(kind: str, made: "Sequence[MadeObject]") -> Iterator[str]:
    yield from dict.fromkeys(f"{one['file']}:{one['line']}" for one in made if one["kind"] == kind)
