"""A lint of the dashboards: what Grafana needs to show them, what a reader needs to understand them, no metric that is not there.

Needs nothing but Python and PyYAML; with promtool, queries are parsed as well.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile

import dashboards
from cases import expect

ALL = dashboards.load()
# Grafana's names of units; a wrong one shows bare numbers without a word.
UNITS = {"none", "short", "s", "bytes", "Bps", "ops", "reqps", "percentunit", "sci", "watt", "celsius", "flops"}
# Exported metrics that no panel shows, each with the reason.
IN_NO_PANEL = {}
RANGES = {"[$__rate_interval]", "[$__range]"}
ANY_VALUES = {"namespace": "n", "job_name": "j", "__rate_interval": "1m", "__interval": "15s", "__range": "1h"}


def problems(check):
    """check(dashboard) yields texts; all of them fail the case."""
    found = [f"{name}: {problem}" for name, dashboard in ALL.items() for problem in check(dashboard)]
    expect(not found, "\n     ".join(["", *found]))


def test_files_are_what_the_generator_makes():
    done = subprocess.run([sys.executable, dashboards.FOLDER / "generate.py", "--check"], capture_output=True, text=True, check=False)
    expect(done.returncode == 0, done.stderr)
    expect(set(ALL) == {"fleet.json", "operator.json", "training-job.json"}, sorted(ALL))


def test_every_data_source_is_the_variable():
    def check(dashboard):
        expect(dashboard["templating"]["list"][0]["type"] == "datasource", "the first variable is the data source")
        name = dashboard["templating"]["list"][0]["name"]
        def walk(node, path):
            if isinstance(node, dict):
                if node.get("datasource", {"type": "prometheus", "uid": f"${{{name}}}"}) != {"type": "prometheus", "uid": f"${{{name}}}"}:
                    yield f"{path}: {node['datasource']}"
                children = node.items()
            else:
                children = enumerate(node) if isinstance(node, list) else ()
            for key, child in children:
                yield from walk(child, f"{path}/{key}")
        yield from walk(dashboard, "")
        for panel in dashboards.panels(dashboard):
            if "datasource" not in panel or not all("datasource" in target for target in panel["targets"]):
                yield f"{panel['title']}: no data source"
    problems(check)


def test_every_panel_has_words_and_a_unit():
    def check(dashboard):
        if not dashboard["description"]:
            yield "no description"
        titles = [panel["title"] for panel in dashboards.panels(dashboard)]
        for panel in dashboards.panels(dashboard):
            if not panel["description"].endswith("."):
                yield f"{panel['title']}: no description in a sentence"
            if titles.count(panel["title"]) > 1:
                yield f"{panel['title']}: two panels of one title"
            if panel["fieldConfig"]["defaults"]["unit"] not in UNITS:
                yield f"{panel['title']}: unit {panel['fieldConfig']['defaults']['unit']}"
            if panel["type"] == "timeseries" and not all(target["legendFormat"] for target in panel["targets"]):
                yield f"{panel['title']}: a series without a legend"
    problems(check)


def test_every_number_has_colours_of_its_own():
    def check(dashboard):  # without, Grafana paints all from 80 on red
        yield from (f"{panel['title']}: no thresholds" for panel in dashboards.panels(dashboard)
                    if panel["type"] == "stat" and "thresholds" not in panel["fieldConfig"]["defaults"])
    problems(check)


def test_tests_dashboards_draws_every_kind_of_panel():
    drawn = {path.stem for path in (dashboards.ROOT / "tests" / "dashboards" / "page" / "panels").glob("*.jsx")}
    used = {panel["type"] for dashboard in ALL.values() for panel in dashboards.panels(dashboard)}
    expect(used == drawn, f"in the dashboards: {sorted(used)}; drawn: {sorted(drawn)}")


def test_numbers_are_unique():
    uids = [dashboard["uid"] for dashboard in ALL.values()]
    expect(len(set(uids)) == len(uids), uids)
    def check(dashboard):
        ids = [panel["id"] for panel in dashboards.everything(dashboard)]
        if len(set(ids)) != len(ids) or dashboard["id"] is not None:
            yield f"ids {ids}"
        for panel in dashboards.panels(dashboard):
            refs = [target["refId"] for target in panel["targets"]]
            if len(set(refs)) != len(refs):
                yield f"{panel['title']}: {refs}"
    problems(check)


def test_panels_lie_in_the_grid_and_on_no_other():
    def check(dashboard):
        taken = {}
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            if place["x"] < 0 or place["x"] + place["w"] > 24:
                yield f"{panel['title']} leaves the grid: {place}"
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    if taken.setdefault((x, y), panel["id"]) != panel["id"]:
                        yield f"{panel['title']} lies on panel {taken[x, y]} at {x}, {y}"
    problems(check)


def test_lines_of_the_grid_are_full():
    def check(dashboard):
        width = {}
        for panel in dashboard["panels"]:
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"]):
                width[y] = width.get(y, 0) + panel["gridPos"]["w"]
        if set(width.values()) != {24} or set(width) != set(range(len(width))):
            yield f"lines that are not full: {sorted(y for y in width if width[y] != 24)}"
    problems(check)


def test_titles_of_numbers_fit():
    problems(lambda dashboard: [panel["title"] for panel in dashboards.panels(dashboard)
                                if panel["type"] == "stat" and len(panel["title"]) > 4.75 * panel["gridPos"]["w"]])


def test_ranges_fit_the_scrape_interval():
    def check(dashboard):
        for where, expression in dashboards.queries(dashboard):
            for interval in re.findall(r"\[[^\]]*\]", expression):
                if interval not in RANGES:
                    yield f"{where}: {interval}"
            for name in re.findall(r"\b(?:rate|increase)\((\w+)", expression):
                if not re.search(r"_(total|bucket|count|sum)$", name):
                    yield f"{where}: {name} is no counter"
    problems(check)


def test_graphs_by_rank_pod_or_job_stay_readable():
    """A thousand lines are no graph."""
    def check(dashboard):
        for panel in dashboards.panels(dashboard):
            for target in panel["targets"]:
                if re.search(r"\{\{(rank|replica|pod|job_name)\}\}", target["legendFormat"]) and not re.match(r"(top|bottom)k\(", target["expr"]):
                    yield f"{panel['title']}: neither topk nor bottomk"
    problems(check)


def test_variables_are_declared_and_used():
    def check(dashboard):
        declared = {v["name"] for v in dashboard["templating"]["list"]}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps([dashboard["panels"], dashboard["annotations"]])))
        used -= {name for name in used if name.startswith("__")}
        if used != declared:
            yield f"declared {sorted(declared)}, used {sorted(used)}"
    problems(check)


def test_links_lead_to_dashboards():
    uids = {dashboard["uid"] for dashboard in ALL.values()}
    problems(lambda dashboard: [link["url"] for link in dashboard["links"] if link["url"].removeprefix("/d/") not in uids])


def test_no_query_names_a_metric_that_nobody_exports():
    known = dashboards.exported() | set(dashboards.recorded())
    expect(len(known) > 40 and "lockstep_train_loss" in known, f"the sources' names were not found: {sorted(known)}")
    def check(dashboard):
        expressions = dashboards.queries(dashboard) + [*dashboards.variables(dashboard).items()]
        for where, expression in expressions:
            names = dashboards.metrics(expression)
            if not names:
                yield f"{where}: no metric in it"
            for name in names:
                if not dashboards.family(name, known):
                    yield f"{where}: {name}"
    problems(check)


def test_every_exported_metric_is_in_a_panel():
    known = dashboards.exported()
    shown = {dashboards.family(name, known) for dashboard in ALL.values() for panel in dashboards.panels(dashboard)
             for target in panel["targets"] for name in dashboards.with_sources(dashboards.metrics(target["expr"]))} - {None}
    expect(known - shown == set(IN_NO_PANEL), f"in no panel: {sorted(known - shown)}; expected: {sorted(IN_NO_PANEL)}")


def test_queries_are_promql():
    if not shutil.which("promtool"):
        print("     not parsed: no promtool here")
        return
    expressions = [(f"{name}: {where}", dashboards.substituted(expression, ANY_VALUES))
                   for name, dashboard in ALL.items() for where, expression in dashboards.queries(dashboard)]
    rules = [{"record": f"a:{number}", "expr": expression, "labels": {"where": where}}
             for number, (where, expression) in enumerate(expressions)]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"groups": [{"name": "all", "rules": rules}]}, file)  # JSON is YAML
        file.flush()
        done = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True, check=False)
    expect(done.returncode == 0, done.stdout + done.stderr)


def test_a_panel_by_rank_has_an_answer_while_a_pod_is_replaced():
    """The old pod and the new one have each said which rank replica 1 is."""
    if not shutil.which("promtool"):
        print("     not played: no promtool here")
        return
    panel, = (panel for panel in dashboards.panels(ALL["training-job.json"]) if panel["title"] == "Steps held, by rank")
    series = [("0", "a", 4, 7), ("1", "old", 5, 5), ("1", "new", 6, 7)]
    labels = 'namespace="n",job_name="j",local_rank="0",replica="{}",pod="{}"'
    play = {"interval": "1m",
            "input_series": [{"series": f"lockstep_train_step{{{labels.format(replica, pod)}}}", "values": f"{step}x5"} for replica, pod, _, step in series]
            + [{"series": f'lockstep_rank_info{{{labels.format(replica, pod)},rank="{rank}"}}', "values": "1x5"} for replica, pod, rank, _ in series],
            "promql_expr_test": [
                {"expr": f"sum by (replica) ({dashboards.substituted(panel['targets'][0]['expr'], ANY_VALUES)})", "eval_time": "3m",
                 "exp_samples": [{"labels": f'{{replica="{replica}"}}', "value": 7} for replica in "01"]}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"tests": [play]}, file)
        file.flush()
        done = subprocess.run(["promtool", "test", "rules", file.name], capture_output=True, text=True, check=False)
    expect(done.returncode == 0, done.stdout + done.stderr)
