"""Which names are no documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest_worker.intake import ignore
from ingest_worker.intake.ignore import IgnoreRules


@pytest.mark.parametrize(
    "name",
    [
        "~$report.docx",
        "scan.part",
        "scan.pdf.filepart",
        "movie.crdownload",
        "a.tmp",
        "A.TMP",
        ".notes.md.swp",
        "notes.md~",
        ".#notes.md",
        "#notes.md#",
        ".DS_Store",
        "deep/down/.DS_Store",
        "Thumbs.db",
        "desktop.ini",
        ".~lock.sheet.ods#",
        ".report.pdf.Ab12Cd",
        ".docwellignore",
        "sub/.docwellignore",
        ".git/config",
        "project/.git/objects/ab/cdef",
        "project/node_modules/left-pad/README.md",
        ".env",
        "project/.env.local",
        ".ssh/config",
    ],
)
def test_temporary_names_locks_and_secrets_are_no_documents(tmp_path: Path, name: str) -> None:
    assert IgnoreRules(tmp_path).rule_for(name) is not None


@pytest.mark.parametrize(
    "name",
    [
        "report.pdf",
        ".github/workflows/build.yml",
        ".eslintrc.config",
        "C# notes.md",
        "#1 in the list.md",
        "part.md",
        "tmp/report.md",
        "環境.env.md",
        "レポート.txt",
        "caf\udce9.txt",
        "git/readme.md",
    ],
)
def test_other_names_are_documents_hidden_ones_too(tmp_path: Path, name: str) -> None:
    assert IgnoreRules(tmp_path).rule_for(name) is None


def test_the_rule_that_ignores_is_named(tmp_path: Path) -> None:
    (tmp_path / ".docwellignore").write_text("# drafts are ours alone\n\ndrafts/\n*.log\n", encoding="utf-8")
    rules = IgnoreRules(tmp_path, ["*.bak"])
    assert rules.rule_for("drafts/a/b.md") == "drafts/"
    assert rules.rule_for("x/run.log") == "*.log"
    assert rules.rule_for("x/run.bak") == "*.bak"
    assert rules.rule_for("~$x.docx") == "~$*"
    assert rules.rule_for("a/.git/config") == ".git/"


def test_the_last_pattern_wins_and_the_owner_wins_over_what_is_built_in(tmp_path: Path) -> None:
    (tmp_path / ".docwellignore").write_text("*.log\n!keep.log\n!*.tmp\n/top.md\n", encoding="utf-8")
    rules = IgnoreRules(tmp_path, ["secret/**"])
    assert rules.rule_for("keep.log") is None
    assert rules.rule_for("data.tmp") is None
    assert rules.rule_for("top.md") == "/top.md"
    assert rules.rule_for("below/top.md") is None
    assert rules.rule_for("secret/a.md") == "secret/**"


def test_nothing_below_an_ignored_folder_comes_back(tmp_path: Path) -> None:
    (tmp_path / ".docwellignore").write_text("build/\n!build/readme.md\n", encoding="utf-8")
    assert IgnoreRules(tmp_path).rule_for("build/readme.md") == "build/"


def test_a_pattern_that_is_none_is_left_out_and_the_others_apply(tmp_path: Path) -> None:
    (tmp_path / ".docwellignore").write_bytes(b"bad\\\n*.log\nlatin-\xe9.md\n")
    rules = IgnoreRules(tmp_path)
    assert rules.rule_for("a.log") == "*.log"
    assert rules.rule_for("latin-\udce9.md") is not None
    assert rules.rule_for("bad") is None


def test_a_folder_without_an_ignore_file_or_no_folder_at_all_has_the_built_in_rules(tmp_path: Path) -> None:
    assert IgnoreRules(tmp_path / "missing").rule_for("a.part") == "*.part"
    assert IgnoreRules(tmp_path / "missing").rule_for("a.md") is None


def test_each_built_in_rule_ignores_a_name_made_from_it(tmp_path: Path) -> None:
    rules = IgnoreRules(tmp_path)
    for rule in ignore._FILE_RULES:
        name = rule.replace("*", "x").replace("?", "p")
        assert rules.ignored_by(name, is_directory=False) is not None, rule
        assert rules.ignored_by(name.upper(), is_directory=False) is not None, rule
    for rule in ignore._FOLDERS:
        assert rules.ignored_by(rule.replace("*", "x"), is_directory=True) is not None, rule
