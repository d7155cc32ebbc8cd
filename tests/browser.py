"""Opens a page in Chromium without a network, runs a reader's actions, and returns the content and the console."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# A copy of the checkout hides the browser, because the checkout's own tests already use it.
HIDDEN = "PROFZOO_TESTS_WITHOUT_BROWSER"
BROWSER = None if HIDDEN in os.environ else next(filter(None, map(shutil.which, NAMES)), None)
# Script of axe-core, which checks rules of accessibility in a page.
AXE = os.environ.get("PROFZOO_AXE")
needed = pytest.mark.skipif(not BROWSER, reason="no Chromium on this machine to open the report in")
# This script is before the page's policy, which applies to everything after it.
ERRORS = """
<script>
window.failures = [];
addEventListener("error", event => failures.push(event.message));
addEventListener("unhandledrejection", event => failures.push(String(event.reason)));
</script>
"""
READER = """
addEventListener("load", async () => {
  const seen = {}, wait = ms => new Promise(done => setTimeout(done, ms));
  const type = (input, words) => { input.value = words; input.dispatchEvent(new Event("input")); };
  const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
  try { %s } catch (error) { failures.push(String(error.stack)); }
  seen.failures = failures;
  const told = document.createElement("pre");
  told.id = "seen";
  told.textContent = JSON.stringify(seen);
  document.body.append(told);
});
"""


def with_script(page: str, script: str, before: str) -> str:
    """Return the page with a further script, which its policy allows like its own; before: the text that follows it."""
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = page.replace("script-src 'sha256-", f"script-src 'sha256-{known}' 'sha256-", 1)
    return f"<script>{script}</script>{before}".join(allowed.rsplit(before, 1))


def command(folder: Path, width: int = 1280, height: int = 900) -> list[str]:
    """Return the command of a headless browser without a network."""
    return [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        f"--window-size={width},{height}", f"--user-data-dir={folder / 'browser'}", "--proxy-server=127.0.0.1:9",
        "--enable-logging=stderr",
    ]  # fmt: skip


def opened(
    page: Path, folder: Path, reader: str, at: str = "", width: int = 1280, more: Sequence[str] = ()
) -> tuple[dict[str, Any], str]:
    """Open a page; return the values that the reader puts into `seen`, and the browser's console output.

    reader: JavaScript statements, which may await; at: part of the address after #; more: words of the command.
    """
    copy = folder / "opened.html"
    html = page.read_text()
    copy.write_text(with_script(html, READER % reader, "</body>").replace("<head>", f"<head>{ERRORS}", 1))
    words = [
        *command(folder, width),
        *more,
        "--virtual-time-budget=8000",
        "--dump-dom",
        f"{copy.as_uri()}{at and '#' + at}",
    ]
    run = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    seen = re.search(r'<pre id="seen">(.*?)</pre>', run.stdout, re.DOTALL)
    assert seen and seen[1], run.stderr
    console = "\n".join(line for line in run.stderr.splitlines() if "CONSOLE" in line)
    return json.loads(unescape(seen[1])), console
