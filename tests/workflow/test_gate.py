"""Runs the shell steps of the CI templates on a tiny repository: judge, comment on a server, and keep the history."""

import json
import os
import re
import subprocess
import sysconfig
import threading
import venv
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from profzoo.referee import envelope, gate, history
from profzoo.referee.gate import Judged
from tests.unit import test_github_workflows
from tests.unit.test_gate import stored

PROJECT = Path(__file__).parents[2]
ACTION, GITLAB = PROJECT / "templates/action/action.yml", PROJECT / "templates/gitlab-ci.yml"
WORKFLOWS = PROJECT / ".github/workflows"
CONFIGURATION = "judge: [{module: models/tiny.py, phase: inference}]\n"
TINY = '''"""A tiny network."""

import torch
from torch import nn

SHAPE = {"width": 64}
WORKLOADS = {"trimmed": {"inference": {"batch": 4}}}


def build(shape):
    return nn.Sequential(nn.Linear(shape.width, shape.width), *[nn.ReLU() for _ in range(COUNT)])


def sample(shape, generator):
    return torch.rand(shape.width, generator=generator), 0
'''
# As often applied as once, but for its time.
BASE, HEAD = TINY.replace("COUNT", "1"), TINY.replace("COUNT", "400")
JUDGED = Judged("models/tiny.py inference", "slower", 9.0, 8.9, 9.1, 0.001, 0.009, why="the candidate takes longer")


def read_steps() -> dict[str, dict[str, Any]]:
    """The steps of the action by name."""
    return {step["name"]: step for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"]}


def run_step(
    text: str, folder: Path, variables: Mapping[str, str], shell: str = "bash"
) -> subprocess.CompletedProcess[str]:
    """Run the shell text of a step as the runner does, with these variables alone beside those of the machine."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    script = folder.parent / "step.sh"
    script.write_text(text)
    options = ["--noprofile", "--norc", "-e", "-o", "pipefail"] if shell == "bash" else ["-e"]
    return subprocess.run(
        [shell, *options, str(script)], cwd=folder, env={**kept, **variables},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    names = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    return subprocess.run(
        ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose head makes a program slower, lets nothing fail, and shadows a package of profzoo."""
    folder = tmp_path / "work"
    (folder / "models").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "models/tiny.py").write_text(BASE)
    (folder / gate.CONFIGURATION).write_text(CONFIGURATION)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=base")
    (folder / "models/tiny.py").write_text(HEAD)
    (folder / gate.CONFIGURATION).write_text("judge: [{module: models/tiny.py, fail_on: []}]\n")
    (folder / "yaml.py").write_text("raise SystemExit('code of the change was imported')\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=head")
    return folder


@pytest.fixture
def runner(tmp_path: Path) -> dict[str, str]:
    """The variables that a runner sets, with files of its own."""
    (tmp_path / "temp").mkdir()
    return {
        "RUNNER_TEMP": str(tmp_path / "temp"), "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "BASE": "HEAD^1", "HEAD": "HEAD", "BUDGET": "8",
    }  # fmt: skip


def make_command(tmp_path: Path, answer: Path | None) -> str:
    """Make an environment that finds profzoo as the action's does, and return its program.

    answer: judgements that are taken in place of new ones.
    """
    venv.create(tmp_path / "env", symlinks=True)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (packages / "locked.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (packages / "profzoo").symlink_to(PROJECT / "profzoo")
    command = tmp_path / "env/bin/profzoo"
    more = f"*(['--claims', {str(answer)!r}] if sys.argv[1] == 'gate' else [])" if answer else ""
    command.write_text(
        f"#!{tmp_path}/env/bin/python -P\nimport sys\nfrom profzoo.__main__ import main\n"
        f"sys.exit(main([*sys.argv[1:], {more}]))\n"
    )
    command.chmod(0o755)
    return str(command)


def test_the_judge_step_leaves_the_comment_the_answer_and_a_measurement_and_fails_at_the_end(
    tmp_path: Path, repository: Path, runner: dict[str, str]
) -> None:
    answer = tmp_path / "stored.json"
    answer.write_text(stored(JUDGED))
    steps = read_steps()
    done = run_step(steps["judge"]["run"], repository, runner | {"COMMAND": make_command(tmp_path, answer)})
    assert done.returncode == 0, done.stderr
    code = Path(runner["GITHUB_OUTPUT"]).read_text()
    assert code == f"code={envelope.EXIT_FAILED}\n"
    assert run_step(steps["result"]["run"], repository, {"CODE": str(envelope.EXIT_FAILED)}).returncode == 4
    folder = Path(runner["RUNNER_TEMP"]) / "profzoo"
    comment = (folder / "comment.md").read_text()
    assert "failed: 1 of 1 program" in comment and "The change edits .profzoo.yaml" in comment
    assert Path(runner["GITHUB_STEP_SUMMARY"]).read_text() == comment
    envelope.check(json.loads((folder / "answer.json").read_text()))
    (point,) = history.read_history(folder / "history.jsonl")
    assert (point.commit, point.seconds) == (git(repository, "rev-parse", "HEAD"), JUDGED.after_s)


@pytest.mark.slow
def test_the_judge_step_judges_both_commits_on_this_cpu(
    tmp_path: Path, repository: Path, runner: dict[str, str]
) -> None:
    done = run_step(read_steps()["judge"]["run"], repository, runner | {"COMMAND": make_command(tmp_path, None)})
    assert done.returncode == 0, done.stderr
    (claim, *_) = json.loads((Path(runner["RUNNER_TEMP"]) / "profzoo/answer.json").read_text())["claims"]
    # A busy machine may leave it undecided, but never the other way round.
    assert claim["outcome"] in ("slower", "undecided"), claim
    assert Path(runner["GITHUB_OUTPUT"]).read_text() == f"code={4 if claim['outcome'] == 'slower' else 0}\n"


def test_a_commit_that_was_not_fetched_fails_with_one_line(
    tmp_path: Path, repository: Path, runner: dict[str, str]
) -> None:
    variables = runner | {"COMMAND": make_command(tmp_path, None), "BASE": "HEAD^7"}
    done = run_step(read_steps()["judge"]["run"], repository, variables)
    assert done.returncode == 0
    assert Path(runner["GITHUB_OUTPUT"]).read_text() == "code=1\n"
    assert "fetch-depth" in done.stderr and "Traceback" not in done.stderr


def test_inputs_of_a_step_are_no_shell_text(tmp_path: Path, repository: Path, runner: dict[str, str]) -> None:
    marker = tmp_path / "ran"
    variables = runner | {"COMMAND": make_command(tmp_path, None), "BASE": f"$(touch {marker})`touch {marker}`;"}
    run_step(read_steps()["judge"]["run"], repository, variables)
    assert not marker.exists()


def test_the_history_step_keeps_measurements_on_a_branch_beside_other_runs(
    tmp_path: Path, repository: Path, runner: dict[str, str]
) -> None:
    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    new = Path(runner["RUNNER_TEMP"]) / "profzoo/history.jsonl"
    new.parent.mkdir()
    facts = history.describe_machine()
    variables = runner | {"GITHUB_TOKEN": "x", "BRANCH": "profzoo-history", "REMOTE": str(remote)}
    for number in (1, 2):
        new.unlink(missing_ok=True)
        point = history.Point(history.name_machine(facts), facts, f"{number:040x}", "2026-01-01", "a.py train", 0.01)
        history.add_points(new, [point])
        done = run_step(read_steps()["history"]["run"], repository, variables)
        assert done.returncode == 0, done.stderr
    kept = tmp_path / "kept.jsonl"
    kept.write_text(git(remote, "show", "profzoo-history:profzoo-history.jsonl") + "\n")
    assert [point.commit[-1] for point in history.read_history(kept)] == ["1", "2"]
    new.write_text("")
    assert "nothing was measured" in run_step(read_steps()["history"]["run"], repository, variables).stdout
    assert git(remote, "rev-list", "--count", "profzoo-history") == "2"


# Addresses of the comments of number 7.
OF_SEVEN = r"/repos/o/r/issues/7/comments|/projects/3/merge_requests/7/notes"


class Server(ThreadingHTTPServer):
    """A server with the comments of one pull request, in the forms of GitHub and GitLab."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.comments: list[dict[str, Any]] = []
        self.tokens: set[str] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Answers what the script of the comment asks for."""

    server: Server

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def answer(self, content: Any, code: int = 200) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def do_GET(self) -> None:
        self.server.tokens.add(self.headers.get("Authorization") or self.headers["PRIVATE-TOKEN"])
        if self.path == "/user":
            self.answer({"username": "bot"})
            return
        if not re.match(OF_SEVEN, self.path):
            self.answer({}, 404)
            return
        page = int(re.search(r"[?&]page=(\d+)", self.path)[1])  # type: ignore[index]
        self.answer(self.server.comments[100 * (page - 1) : 100 * page])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        by = {"login": "github-actions[bot]", "username": "bot"}
        self.server.comments.append({"id": len(self.server.comments), "body": body, "user": by})
        self.answer({}, 201)

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        self.server.comments[int(self.path.rsplit("/", 1)[1])]["body"] = body
        self.answer({})

    do_PUT = do_PATCH  # noqa: N815


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()


def comment_variables(kind: str, server: Server) -> dict[str, str]:
    """Variables of the step that comments."""
    if kind == "gitlab":
        return {"GITLAB_CI": "true", "CI_API_V4_URL": server.address, "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7",
                "PROFZOO_TOKEN": "secret"}  # fmt: skip
    return {"GITHUB_API_URL": server.address, "GITHUB_REPOSITORY": "o/r", "PULL_REQUEST": "7", "GITHUB_TOKEN": "secret"}


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_the_comment_step_updates_its_own_comment_and_no_other(
    kind: str, tmp_path: Path, server: Server, runner: dict[str, str]
) -> None:
    others = [{"id": at, "body": f"{gate.MARK}\nfalse", "user": {"login": "eve"}} for at in range(130)]
    server.comments.extend(others)
    folder = Path(runner["RUNNER_TEMP"]) / "profzoo"
    folder.mkdir()
    file = folder / "comment.md"
    variables = runner | comment_variables(kind, server) | {"ACTION": str(ACTION.parent)}
    for text in ("one", "two"):
        file.write_text(f"{gate.MARK}\n{text}\n")
        done = run_step(read_steps()["comment"]["run"], folder, variables)
        assert done.returncode == 0, done.stderr
    assert [one["body"] for one in server.comments[130:]] == [f"{gate.MARK}\ntwo\n"]
    assert all(one["body"].endswith("false") for one in server.comments[:130])
    assert server.tokens == {"secret" if kind == "gitlab" else "Bearer secret"}
    file.write_text("no comment of the gate")
    done = run_step(read_steps()["comment"]["run"], folder, variables)
    assert done.returncode and "is no comment of profzoo gate" in done.stderr
    file.write_text(f"{gate.MARK}\n")
    done = run_step(
        read_steps()["comment"]["run"], folder, variables | {"PULL_REQUEST": "8", "CI_MERGE_REQUEST_IID": "8"}
    )
    assert done.returncode and "404" in done.stderr and "secret" not in done.stderr


def list_scripts() -> dict[str, tuple[str, str]]:
    """The shell texts of both templates, with their shells."""
    found = {f"action: {name}": ("bash", step["run"]) for name, step in read_steps().items() if "run" in step}
    for job, content in yaml.safe_load(GITLAB.read_text()).items():
        for part in ("before_script", "script"):
            if isinstance(content, dict) and part in content:
                found[f"gitlab: {job}, {part}"] = ("sh", "\n".join(content[part]))
    return found


@pytest.mark.parametrize("name", list_scripts())
def test_each_shell_text_can_be_read(name: str, tmp_path: Path) -> None:
    shell, text = list_scripts()[name]
    (tmp_path / "step.sh").write_text(text)
    subprocess.run([shell, "-n", str(tmp_path / "step.sh")], check=True)
    # Values reach a step by its variables, so that they are no text of the shell.
    assert "${{" not in text


def test_actions_are_pinned_as_in_the_workflows_and_code_of_the_change_gets_no_token() -> None:
    steps = read_steps()
    known = set(
        re.findall(r"uses: (actions/\S+@[0-9a-f]{40})", "".join(path.read_text() for path in WORKFLOWS.glob("*.yml")))
    )
    assert {step["uses"] for step in steps.values() if "uses" in step} <= known
    judging = [step for step in steps.values() if "'judge'" in step["if"] and "!=" not in step["if"]]
    assert len(judging) == 4
    assert not any("token" in json.dumps(step).lower() for step in judging)
    assert [name for name, step in steps.items() if "token" in json.dumps(step.get("env", {}))] == [
        "comment",
        "history",
    ]
    for step in steps.values():
        assert ("run" in step) == ("shell" in step)


def test_jobs_of_the_page_that_may_write_check_out_no_code() -> None:
    page = (PROJECT / "docs/guides/gate.md").read_text()
    (text,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "jobs:" in block]
    workflow = yaml.load(text, test_github_workflows.Loader)
    assert workflow["permissions"] == {} and "pull_request_target" not in workflow["on"]
    for name, job in workflow["jobs"].items():
        uses = [step["uses"].partition("@")[0] for step in job["steps"]]
        assert ("actions/checkout" in uses) == (name == "judge")
        assert ("write" in job["permissions"].values()) == (name != "judge")
        (own,) = [step for step in job["steps"] if step["uses"].startswith("OWNER/")]
        assert set(own.get("with", {})) <= set(yaml.safe_load(ACTION.read_text())["inputs"])


def test_jobs_of_gitlab_pin_their_image_and_a_fork_gets_no_comment_job() -> None:
    jobs = {name: job for name, job in yaml.safe_load(GITLAB.read_text()).items() if "script" in job}
    assert set(jobs) == {"profzoo judge", "profzoo comment", "profzoo history"}
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", job["image"]) for job in jobs.values())
    (rule,) = jobs["profzoo comment"]["rules"]
    assert "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in rule["if"]
    assert "TOKEN" not in json.dumps(jobs["profzoo judge"])
    assert jobs["profzoo comment"]["environment"]["name"] == "profzoo-comment"


@pytest.mark.parametrize("job", ["profzoo judge"])
def test_the_script_of_gitlab_judges_and_keeps_its_exit_code(
    job: str, tmp_path: Path, repository: Path, runner: dict[str, str]
) -> None:
    answer = tmp_path / "stored.json"
    answer.write_text(stored(JUDGED))
    (text,) = yaml.safe_load(GITLAB.read_text())[job]["script"]
    variables = {"PROFZOO_COMMAND": make_command(tmp_path, answer), "PROFZOO_BUDGET": "8", "BASE": "", "HEAD": "HEAD"}
    done = run_step(text, repository, variables, shell="sh")
    assert done.returncode == envelope.EXIT_FAILED, done.stderr
    assert (repository / "profzoo-gate/comment.md").read_text().startswith(gate.MARK)
    assert len(history.read_history(repository / "profzoo-gate/history.jsonl")) == 1


def test_the_marks_of_the_script_and_of_the_gate_are_the_same() -> None:
    assert f'MARK = "{gate.MARK}"' in (ACTION.parent / "comment.py").read_text()
