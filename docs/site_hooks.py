"""Hooks of mkdocs: pages of the repository outside of docs/ become pages of the site, and links to them hold."""

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT = Path(__file__).parent.parent
# Pages outside of docs/ by their place in the repository, and where they are in the site.
OUTSIDE = {
    "README.md": "README.md",
    "config/README.md": "reference/settings.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "LICENSE.txt",
}
LINK = re.compile(r"(\]\(|src=\"|srcset=\")([^)\s#:\"]+)((?:#[^)\s]*)?[)\"])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside."""
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, abs_src_path=str(PROJECT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between places in the repository into links between places in the site."""
    target = page.file.src_uri
    source = next((source for source, place in OUTSIDE.items() if place == target), f"docs/{target}")

    def rewrite(match: re.Match[str]) -> str:
        linked = os.path.normpath(PurePosixPath(source).parent / match[2])
        place = OUTSIDE.get(linked, linked.removeprefix("docs/"))
        return f"{match[1]}{os.path.relpath(place, PurePosixPath(target).parent)}{match[3]}"

    return LINK.sub(rewrite, markdown)
