"""Writes the comment of a gate on a pull request of GitHub or a merge request of GitLab, in place of an earlier one.

python3 -I comment.py comment.md

It needs Python alone, and runs nothing of the pull request: only here is the token.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

MARK = "<!-- profzoo gate -->"
# Characters that GitHub accepts; seconds that a server may take; comments of a page, and pages that are looked through.
LONGEST, PATIENCE_S, PAGE, PAGES = 65_536, 30, 100, 20


def need(name):
    """Return the value of an environment variable."""
    return os.environ.get(name) or sys.exit(f"profzoo: the variable {name} is not set")


def ask(method, url, headers, content=None):
    """Return the server's answer to a request."""
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, body, {**headers, "Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        sys.exit(f"profzoo: the server refuses the comment ({method}: {error.code}): may the token write comments?")
    except (OSError, ValueError) as error:
        sys.exit(f"profzoo: the server cannot be asked ({method}): {error}")


def find_place():
    """Return headers, address of all comments, that of one, method of a change, and who writes them."""
    if os.environ.get("GITLAB_CI"):
        server, headers = need("CI_API_V4_URL"), {"PRIVATE-TOKEN": need("PROFZOO_TOKEN")}
        every = f"{server}/projects/{need('CI_PROJECT_ID')}/merge_requests/{need('CI_MERGE_REQUEST_IID')}/notes"
        return headers, every, every + "/{}", "PUT", ask("GET", f"{server}/user", headers)["username"]
    issues = f"{need('GITHUB_API_URL')}/repos/{need('GITHUB_REPOSITORY')}/issues"
    author = os.environ.get("PROFZOO_AUTHOR") or "github-actions[bot]"
    headers = {"Authorization": f"Bearer {need('GITHUB_TOKEN')}"}
    return headers, f"{issues}/{need('PULL_REQUEST')}/comments", issues + "/comments/{}", "PATCH", author


def find_comment(url, headers, author):
    """Return the number of the comment that an earlier run wrote, or None; one of another author is not touched."""
    for page in range(1, PAGES + 1):
        found = ask("GET", f"{url}?per_page={PAGE}&page={page}", headers)
        for one in found:
            by = one.get("user") or one.get("author") or {}
            if str(one.get("body", "")).startswith(MARK) and author in (by.get("login"), by.get("username")):
                return one["id"]
        if len(found) < PAGE:
            break
    return None


def main():
    """Write the comment."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    if not text.startswith(f"{MARK}\n") or len(text) > LONGEST:
        sys.exit(f"profzoo: {sys.argv[1]} is no comment of profzoo gate")
    headers, every, single, method, author = find_place()
    known = find_comment(every, headers, author)
    if known is None:
        ask("POST", every, headers, {"body": text})
    else:
        ask(method, single.format(known), headers, {"body": text})
    print("profzoo: wrote the comment" if known is None else "profzoo: updated the comment")


if __name__ == "__main__":
    main()
