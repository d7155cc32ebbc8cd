"""Tests of what README.md, CONTRIBUTING.md and docs/ show: every block of code, command and output."""
