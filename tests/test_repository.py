"""Files around the package: warnings in tests, continuous integration, pre-commit hooks, citation, issue forms."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import vitlab

ROOT = Path(__file__).resolve().parent.parent


def read(path: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="comes with: pip install 'vitlab[docs]'")
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("category", [DeprecationWarning, FutureWarning])
def test_warnings_that_our_calls_cause_are_errors(category: type[Warning]) -> None:
    with pytest.raises(category):
        warnings.warn_explicit("old", category, "zoo.py", 1, module="vitlab.zoo")
    warnings.warn_explicit("old", category, "layers.py", 1, module="timm.layers")  # inside other libraries: ignored


def test_continuous_integration_runs_the_script() -> None:
    job = read(".github/workflows/ci.yml")["jobs"]["checks"]
    commands = [step.get("run", "") for step in job["steps"]]
    assert ".ci/run" in commands and any("chromium" in command for command in commands)
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_hooks_need_no_network() -> None:
    """Every hook is local and runs a tool of the development environment."""
    repositories = read(".pre-commit-config.yaml")["repos"]
    hooks = [hook for repository in repositories for hook in repository["hooks"]]
    assert {repository["repo"] for repository in repositories} == {"local"}
    assert {hook["language"] for hook in hooks} == {"system"}
    assert all(hook["entry"].startswith(".venv/bin/python -m ") for hook in hooks)


def test_citation_names_this_version() -> None:
    citation = read("CITATION.cff")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert (citation["title"], citation["version"]) == ("vitlab", vitlab.__version__)
    assert f'license = "{citation["license"]}"' in project and citation["authors"][0]["name"] in project


def test_paths_in_the_security_policy_exist() -> None:
    paths = re.findall(r"`(src/[^`]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("form", ["bug", "feature", "result"])
def test_issue_forms_have_what_github_requires(form: str) -> None:
    found = read(f".github/ISSUE_TEMPLATE/{form}.yml")
    assert found["name"] and found["description"]
    assert all(field["type"] and field["attributes"]["label"] for field in found["body"])
    identifiers = [field["id"] for field in found["body"]]
    assert len(identifiers) == len(set(identifiers))
