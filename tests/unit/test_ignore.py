"""Which names are no documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest_worker.intake.ignore import IgnoreRules
from ingest_worker.intake.names import name_rules
from shared.config import Settings
from shared.ignored import IGNORED_FOLDERS, SECRET_FOLDERS, SECRET_NAMES, TEMPORARY_NAMES


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
    for rule in (*TEMPORARY_NAMES, *SECRET_NAMES):
        name = rule.replace("*", "x").replace("?", "p")
        assert rules.ignored_by(name, is_directory=False) is not None, rule
        assert rules.ignored_by(name.upper(), is_directory=False) is not None, rule
    for rule in (*IGNORED_FOLDERS, *SECRET_FOLDERS):
        assert rules.ignored_by(rule.replace("*", "x"), is_directory=True) is not None, rule


@pytest.mark.parametrize(
    ("pattern", "name", "other"),
    [
        ("*.bak", "a.BAK", "bak.md"),
        ("draft*", "Draft 1.md", "a draft.md"),
        ("?.md", "a.md", "ab.md"),
        ("[0-9]*", "7.md", "a7.md"),
        ("*old*", "an old one.md", "new.md"),
        ("*", "anything", None),
        ("entwurf ä.md", "ENTWURF Ä.md", "entwurf.md"),
    ],
)
def test_a_name_of_the_settings_ignores_what_it_matches_and_nothing_else(
    tmp_path: Path, pattern: str, name: str, other: str | None
) -> None:
    rules = IgnoreRules(tmp_path, names=name_rules(Settings(ignore_names=(pattern,), ignore_folders=(pattern,))))
    for is_directory in (False, True):
        rule = rules.ignored_by(f"sub/{name}", is_directory=is_directory)
        assert rule is not None
        assert rule.rstrip("/") == pattern
        assert rule.origin == ("DOCWELL_IGNORE_FOLDERS" if is_directory else "DOCWELL_IGNORE_NAMES")
        assert other is None or rules.ignored_by(other, is_directory=is_directory) is None


def test_without_names_in_the_settings_secrets_and_the_rules_themselves_stay_out(tmp_path: Path) -> None:
    rules = IgnoreRules(tmp_path, names=name_rules(Settings(ignore_names=(), ignore_folders=())))
    assert rules.rule_for("a.tmp") is None
    assert rules.rule_for("node_modules/a.md") is None
    for name in (".env", ".env.local", "id_rsa", ".ssh/config", ".docwellignore"):
        assert rules.rule_for(name) is not None, name


def test_a_rule_tells_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / ".docwellignore").write_text("*.log\n", encoding="utf-8")
    rules = IgnoreRules(tmp_path, ["*.bak"])
    for name, said in (
        ("a.log", "*.log (.docwellignore)"),
        ("a.bak", "*.bak (`ignore` of the source)"),
        ("a.part", "*.part (DOCWELL_IGNORE_NAMES)"),
        (".git/config", ".git/ (DOCWELL_IGNORE_FOLDERS)"),
        (".env", ".env (built in, since it holds secrets)"),
    ):
        rule = rules.rule_for(name)
        assert rule is not None
        assert rule.explained == said


def test_rules_that_cannot_be_read_are_a_problem_and_not_no_rules(tmp_path: Path) -> None:
    (tmp_path / ".docwellignore").mkdir()
    problem = IgnoreRules(tmp_path).problem
    assert problem is not None
    assert ".docwellignore cannot be read" in problem
