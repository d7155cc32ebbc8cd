"""Answers questions about a folder of results in JSON, for agents and other programs: `profzoo ask`."""

import argparse
import importlib
import json
from collections.abc import Sequence
from pathlib import Path

from profzoo.errors import ConfigError
from profzoo.io import strict_yaml
from profzoo.referee import envelope, questions, session
from profzoo.referee.envelope import Envelope

JUDGE, SESSION, SCHEMA, SKILL = "judge", "session", "schema", "skill"
SKILL_FILE = envelope.SCHEMA.with_name("skill") / "SKILL.md"
# Each question with what follows it, and what it answers.
ASKED = {
    "list": ("[FOLDER]", "the cells of a folder of results, and how much is known of each"),
    "diagnose": ("CELL", "what holds a cell (lstm/train) back: its verdicts, and which tools have not measured it"),
    "plans": ("[CELL]", "settings to try, the best first, with the expected gain and how often such gains were right"),
    "compare": ("[CELL]", "sides that were compared: which is faster, by how much, and whether it computes the same"),
    "trials": ("[CELL]", "settings that were tried, with the measured gain"),
    "evidence": ("ID", "a claim by its id, with the row it is made of and the commands that remake its files"),
    questions.CLAIMS: ("", "all claims, as export=json writes them"),
    JUDGE: ("A B ...", "what the judge decides between two states of a program; takes the judge's own options"),
    SESSION: ("FILE", "the tests of a session that judge --session kept, computed anew from their raw rounds"),
    SCHEMA: ("", "the JSON Schema of every answer"),
    SKILL: ("", "a page for coding agents: from a slow program to a proven gain"),
}
EXITS = {
    envelope.EXIT_CODES[envelope.ANSWERED]: "something is claimed",
    envelope.EXIT_CODES[envelope.ERROR]: "an error, which the answer names: a file, a folder, a cell or an id",
    envelope.EXIT_USAGE: "the command line is wrong; there is no answer",
    envelope.EXIT_CODES[envelope.ABSTAINED]: "nothing is claimed, and the answer says why",
    envelope.EXIT_FAILED: "the judge's answer is one that it was told to fail on",
}


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    if words[:1] == [JUDGE]:
        # Imported here, because it needs torch; it prints an envelope too.
        code: int = importlib.import_module(questions.JUDGING).main(["--json", *words[1:]])
        return code
    parser = _parser()
    options = parser.parse_args(words)
    if options.question == SCHEMA:
        print(json.dumps(strict_yaml.load_yaml(envelope.SCHEMA), indent=2))
        return 0
    if options.question == SKILL:
        print(SKILL_FILE.read_text(encoding="utf-8"), end="")
        return 0
    if options.question == SESSION:
        if len(options.words) != 1:
            parser.error("session takes one FILE, as in `profzoo ask session session.jsonl`")
        return _print(session.describe_session(Path(options.words[0])))
    given, asked = options.results, [options.question, *options.words]
    if options.question == "list" and given is None:
        given, asked = (" ".join(options.words) or None), ["list"]
    return _print(answer_here(asked, given))


def _print(answer: Envelope) -> int:
    print(envelope.format_json(answer))
    return answer.exit_code


def answer_here(question: Sequence[str], given: str | None) -> Envelope:
    """Answer a question about the folder of results that is given, or else about that of the working directory."""
    try:
        folder = questions.find_results(given, Path())
    except ConfigError as error:
        return envelope.fail(question, error)
    return questions.ask(question, folder)


def _parser() -> argparse.ArgumentParser:
    width = max(len(f"{name} {words}") for name, (words, _) in ASKED.items())
    asked = [f"  {f'{name} {words}':<{width}}  {answers}" for name, (words, answers) in ASKED.items()]
    exits = [f"  {code}  {means}" for code, means in sorted(EXITS.items())]
    parser = argparse.ArgumentParser(
        prog="profzoo ask",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(["questions:", *asked, "", "exit codes:", *exits]),
    )
    folders = " or ".join(questions.FOLDERS)
    parser.add_argument("--results", metavar="FOLDER", help=f"the folder of results; {folders} unless given")
    parser.add_argument("question", choices=ASKED, metavar="QUESTION", help="see below")
    parser.add_argument("words", nargs="*", metavar="WORD", help="what the question takes: a cell, an id, a folder")
    return parser
