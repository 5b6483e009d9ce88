"""The alerts and recording rules: promtool plays alerts_test.yaml and recording_test.yaml. Each alert fires and keeps silent, has a runbook and
names metrics that exist; each recording rule has an expected value, and a name by Prometheus' convention."""
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

import dashboards
from cases import LIMIT, expect

pytestmark = pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool on PATH")

FOLDER = pathlib.Path(__file__).resolve().parent
CHART = FOLDER.parents[2] / "charts" / "lockstep"
RUNBOOKS = FOLDER.parents[2] / "docs" / "how-to" / "monitoring.md"
PLAYS, RECORDING_PLAYS = FOLDER / "alerts_test.yaml", FOLDER / "recording_test.yaml"
RULES = [rule for group in yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
NAMES = [rule["alert"] for rule in RULES]


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)
    expect(done.returncode == 0, done.stdout + done.stderr)


def test_rules_fire_and_keep_silent_as_played():
    promtool("check", "rules", str(CHART / "alerts.yaml"))
    promtool("test", "rules", str(PLAYS))


def test_recording_rules_compute_what_is_expected():
    promtool("check", "rules", str(CHART / "recording.yaml"))
    promtool("test", "rules", str(RECORDING_PLAYS))
    asked = {dashboards.metrics(one["expr"]).pop()
             for play in yaml.safe_load(RECORDING_PLAYS.read_text())["tests"] for one in play["promql_expr_test"]}
    expect(asked == set(dashboards.recorded()), f"asked: {sorted(asked)}, recorded: {sorted(dashboards.recorded())}")


def test_recording_rules_are_named_by_level_metric_and_operation():
    groups = {group["name"]: group["rules"] for group in yaml.safe_load((CHART / "recording.yaml").read_text())["groups"]}
    for rule in groups["lockstep-recording"]:
        expect(re.fullmatch(r"namespace_job_name(_phase)?:lockstep_\w+:rate2m", rule["record"]), rule)


def test_every_alert_is_seen_firing_and_silent():
    seen = {(test["alertname"], bool(test.get("exp_alerts")))
            for play in yaml.safe_load(PLAYS.read_text())["tests"] for test in play["alert_rule_test"]}
    expect(seen == {(name, fires) for name in NAMES for fires in (True, False)}, sorted(seen))


def test_every_alert_has_words_a_severity_and_a_runbook():
    headings = re.findall(r"^### (\w+)$", RUNBOOKS.read_text(), re.M)
    expect([h for h in headings if h.startswith("Lockstep")] == NAMES, f"runbooks {headings}, alerts {NAMES}")
    for rule in RULES:
        expect(set(rule["annotations"]) == {"summary", "description"}, rule)
        expect(rule["labels"]["severity"] in ("critical", "warning"), rule)


def test_rules_name_only_metrics_that_are_exported():
    known = dashboards.exported()
    for rule in RULES:
        names = dashboards.metrics(rule["expr"])
        expect(names and all(dashboards.family(name, known) for name in names), f"{rule['alert']}: {names}")
    for record, expression in dashboards.recorded().items():
        names = dashboards.metrics(expression)
        expect(names and all(name in dashboards.recorded() or dashboards.family(name, known) for name in names), f"{record}: {names}")


def test_values_know_every_alert():
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    known = schema["properties"]["metrics"]["properties"]["prometheusRule"]["properties"]["disabledAlerts"]["items"]["enum"]
    expect(known == NAMES, f"values.schema.json knows {known}")
