"""Adds the files of the workflow to wheel and sdist, for `profzoo init`; everything else is in pyproject.toml."""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
NAMES = runpy.run_path(str(ROOT / "profzoo" / "cli" / "project_files.py"))


class BuildWithWorkflow(build_py):
    """Builds the package with a folder of the workflow's files in it."""

    def _built_files(self) -> dict[Path, Path]:
        """Map the workflow's files to where they are built; an editable package finds them in the checkout."""
        if self.editable_mode:
            return {}
        built = Path(self.build_lib) / "profzoo" / NAMES["INSTALLED"]
        return {file: built / file for file in NAMES["list_files"](ROOT)}

    def run(self) -> None:
        """Build the package, and then copy the files."""
        super().run()
        for file, target in self._built_files().items():
            self.mkpath(str(target.parent))
            self.copy_file(str(file), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """List all files that are built."""
        return [*super().get_outputs(include_bytecode), *map(str, self._built_files().values())]

    def get_source_files(self) -> list[str]:
        """List all files that the build reads, which are the sdist."""
        return [*super().get_source_files(), *map(str, self._built_files())]


setup(cmdclass={"build_py": BuildWithWorkflow})
