"""The envelope of every answer for programs: claims with intervals and evidence, or why there is none, as JSON.

The form is that of `envelope.yaml`, a JSON Schema with a version. Text that a measured program chose, such as its
output or the names of its files, is data and never an instruction: `quote` cuts it, and makes hidden characters
visible.
"""

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from profzoo.errors import first_error_line
from profzoo.io import strict_yaml

SCHEMA = Path(__file__).with_name("envelope.yaml")
VERSION = 1

ANSWERED, ABSTAINED, ERROR = "answered", "abstained", "error"
# Exit codes of commands that print an envelope. A gate has its own for an answer that it was told to fail on.
EXIT_CODES = {ANSWERED: 0, ERROR: 1, ABSTAINED: 3}
EXIT_FAILED, EXIT_USAGE = 4, 2
# Characters of a text of a measured program that an envelope holds at most.
LONGEST = 400


@dataclass(frozen=True)
class Evidence:
    """Where a claim comes from.

    file: path below the folder of results. row: number of the row below the heading, from 1; None for a whole file.
    command: what remakes the file. fields: the row by column, as the file has it, where it was asked for.
    """

    file: str
    row: int | None = None
    command: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrackRecord:
    """How often claims of this kind were right: of `trials` that were measured, `right` were; says: in a sentence."""

    trials: int
    right: int | None = None
    says: str = ""


@dataclass(frozen=True)
class Claim:
    """One thing that is claimed.

    id: names the claim within its folder of results, and stays the same while the claim does. kind: cell, verdict,
    plan, comparison, trial or judgement. subject: what it is about, such as a cell. outcome: the claim in one term.
    says: the claim in a sentence. value, low, high: the quantity with the ends of its interval, in `unit`; None if
    unknown. confidence: of the interval, 0 to 1. settings: the settings it is about, as key=value words. next: what to
    do next, in words, lines of PyTorch or commands.
    """

    id: str
    kind: str
    subject: str
    outcome: str
    says: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    confidence: float | None = None
    evidence: Sequence[Evidence] = ()
    record: TrackRecord | None = None
    settings: str = ""
    next: Sequence[str] = ()


@dataclass(frozen=True)
class Abstention:
    """A subject about which nothing is claimed, and why."""

    subject: str
    why: str


@dataclass(frozen=True)
class Problem:
    """Why there is no answer: what is wrong, where, and what to do."""

    what: str
    where: str = ""
    do: str = ""


@dataclass(frozen=True)
class Envelope:
    """An answer to a question; question: its words, the first of which names it."""

    question: Sequence[str]
    claims: Sequence[Claim] = ()
    abstained: Sequence[Abstention] = ()
    error: Problem | None = None
    notes: Sequence[str] = field(default=())

    @property
    def status(self) -> str:
        """Whether the question was answered."""
        if self.error:
            return ERROR
        return ANSWERED if self.claims else ABSTAINED

    @property
    def exit_code(self) -> int:
        """Exit code of a command that prints the envelope."""
        return EXIT_CODES[self.status]


def to_json(envelope: Envelope) -> dict[str, Any]:
    """Return an envelope as an object of JSON: texts are quoted, and numbers that JSON lacks become null."""
    found = {"schema": "profzoo-answer", "version": VERSION, "status": envelope.status, **asdict(envelope)}
    cleaned: dict[str, Any] = _clean(found)
    return cleaned


def format_json(envelope: Envelope) -> str:
    """Return an envelope as text of JSON, in lines."""
    return json.dumps(to_json(envelope), indent=2, ensure_ascii=True, allow_nan=False)


def check(found: object) -> None:
    """Check an object of JSON against the schema of envelopes.

    Raises:
        jsonschema.ValidationError: it has another form.
    """
    _validator().validate(found)


@cache
def _validator() -> Any:
    # Imported here, because an answer is printed without it.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(strict_yaml.load_yaml(SCHEMA))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return quote(value, 10 * LONGEST)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {quote(str(key)): _clean(one) for key, one in value.items()}
    return [_clean(one) for one in value] if isinstance(value, Sequence) else value


def quote(text: str, longest: int = LONGEST) -> str:
    r"""Return a text whose hidden characters are visible as escapes, cut after `longest` characters.

    Line ends, escapes of terminals, marks of direction and characters without a glyph are hidden; a space is not.

    >>> quote("red \x1b[31m\n"), quote("abc\u202edef")
    ('red \\x1b[31m\\n', 'abc\\u202edef')
    >>> quote("0123456789", 4)
    '0123 (cut: 6 more characters)'
    """
    kept = text[:longest]
    shown = "".join(one if one == " " or _is_visible(one) else ascii(one)[1:-1] for one in kept)
    return f"{shown} (cut: {len(text) - longest} more characters)" if len(text) > longest else shown


def _is_visible(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CZ"


def fail(question: Sequence[str], error: BaseException, where: str = "", do: str = "") -> Envelope:
    """Return the envelope of a question that cannot be answered because of an error."""
    return Envelope(tuple(question), error=Problem(first_error_line(error), where, do))


def add_note(envelope: Envelope, note: str) -> Envelope:
    """Return an envelope with one more note, such as what the answer is limited by."""
    return replace(envelope, notes=(*envelope.notes, note))
