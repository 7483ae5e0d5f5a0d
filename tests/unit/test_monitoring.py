"""The dashboard and the alert rules: that they can be loaded, and ask only for metrics that exist with labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra" / "monitoring"
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((FOLDER / "prometheus-alerts.yaml").read_text(encoding="utf-8"))

_ROW = re.compile(r"^\| `(?P<name>docwell_\w+)` \| (?P<type>\w+) \|(?P<labels>[^|]*)\|", re.MULTILINE)
_ADDED = ("instance", "job", "le")
"""Labels that Prometheus adds, and the one of a histogram's buckets."""


def _documented() -> dict[str, set[str]]:
    """Every series of docs/metrics.md with its labels; a histogram has three."""
    found = {}
    for row in _ROW.finditer((ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")):
        ends = ("_bucket", "_count", "_sum") if row["type"] == "histogram" else ("",)
        found |= {row["name"] + end: set(re.findall(r"`(\w+)`", row["labels"])) for end in ends}
    return found


def _panels() -> Iterator[dict[str, Any]]:
    yield from (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def _rules() -> list[dict[str, Any]]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


EXPRESSIONS = [
    *((f"panel {panel['title']}", target["expr"]) for panel in _panels() for target in panel["targets"]),
    *((f"alert {rule['alert']}", rule["expr"]) for rule in _rules()),
]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_every_expression_asks_for_metrics_and_labels_that_exist(where: str, expression: str) -> None:
    documented = _documented()
    names = set(re.findall(r"\bdocwell_\w+", expression))
    assert names or "up{" in expression
    assert names <= documented.keys(), names - documented.keys()
    labels = set().union(*(documented[name] for name in names), _ADDED)
    selected = {label for inner in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)\s*[=!]", inner)}
    grouped = {label.strip() for inner in re.findall(r"\bby \(([^)]*)\)", expression) for label in inner.split(",")}
    assert selected | grouped <= labels
    assert expression.count("(") == expression.count(")")
    for name in names:
        if name.endswith(("_total", "_bucket", "_sum")):
            assert re.search(rf"\b(rate|increase)\({name}", expression), f"{name} only ever grows"


def test_legends_name_only_labels_that_the_expression_keeps() -> None:
    for panel in _panels():
        for target in panel["targets"]:
            kept = {label.strip() for inner in re.findall(r"\bby \(([^)]*)\)", target["expr"]) for label in inner.split(",")}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, panel["title"]


def test_the_dashboard_can_be_imported_anywhere_and_its_panels_do_not_overlap() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert "id" not in DASHBOARD  # a number of one Grafana
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource"]
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in _panels())


def test_every_alert_says_how_bad_it_is_what_happened_and_what_to_do() -> None:
    rules = _rules()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))


def test_the_scrape_configuration_loads_these_rules() -> None:
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    assert [(FOLDER / name).is_file() for name in configuration["rule_files"]] == [True]
    jobs = {job["job_name"]: job["static_configs"][0]["targets"] for job in configuration["scrape_configs"]}
    assert jobs == {"docwell-api": ["127.0.0.1:8080"], "docwell-mcp": ["127.0.0.1:8090"]}


def test_every_metric_of_the_page_is_on_the_dashboard_or_in_an_alert_or_is_told_by_another() -> None:
    used = {name for _, expression in EXPRESSIONS for name in re.findall(r"\bdocwell_\w+", expression)}
    histograms = {name.rpartition("_")[0] for name in _documented() if name.endswith("_bucket")}
    unused = {
        name
        for name in _documented()
        if name not in used and not (name.rpartition("_")[0] in histograms and "_bucket" not in name)
    }
    assert unused == {
        "docwell_jobs",  # docwell_queue_jobs and docwell_dead_letters have the same by source and reason
        "docwell_newest_sweep_timestamp_seconds",  # docwell_sweep_age_seconds is it by now
        "docwell_remote_synced_timestamp_seconds",  # docwell_remote_behind_seconds is it by now
        "docwell_pool_connections",
        "docwell_pool_requests_total",
        "docwell_pool_waits_total",
    }
