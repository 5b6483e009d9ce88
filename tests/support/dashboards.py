"""The chart's Grafana dashboards as tests see them: their queries, and the names of the metrics in a query.

Also the names of the metrics that the programs export, from the only sources that may touch the metrics library (tests/unit/layering).
"""
import json
import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "charts" / "lockstep" / "dashboards"
RECORDING = ROOT / "charts" / "lockstep" / "recording.yaml"
PREFIXES = "lockstep|controller_runtime|workqueue|rest_client|leader_election|process"
# Folders that make metrics, and the header with the names of the workers'.
MAKERS = ("operator/telemetry", "runtime/telemetry", "runtime/common/telemetry")
NAMES = "runtime/common/protocol/metric_names.h"
HISTOGRAM_SUFFIX = re.compile(r"_(bucket|sum|count)$")


def load():
    """{file name: dashboard}"""
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def panels(dashboard):
    """Those that show something, also in closed rows; rows only group them."""
    return [panel for panel in everything(dashboard) if panel["type"] != "row"]


def everything(dashboard):
    """Rows and panels, those of closed rows included."""
    return [one for panel in dashboard["panels"] for one in (panel, *panel.get("panels", []))]


def queries(dashboard):
    """(where it stands, expression) of panels and annotations."""
    found = [(f"{panel['title']} {target['refId']}", target["expr"]) for panel in panels(dashboard) for target in panel["targets"]]
    return found + [(f"annotation {a['name']}", a["expr"]) for a in dashboard["annotations"]["list"]]


def variables(dashboard):
    """{name: its label_values expression}, in the order in which they depend on each other; the data source is none of them."""
    return {v["name"]: v["query"]["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"}


def substituted(expression, values):
    """The expression as Grafana would send it; {name: value}, with $__rate_interval and $__range among them."""
    return re.sub(r"\$(\w+)", lambda match: values[match.group(1)], expression)


def without_texts(expression):
    """The expression without texts, label matchers and lists of labels: names, functions and operators are left."""
    expression = re.sub(r'"[^"]*"', "", expression)
    expression = re.sub(r"\{[^}]*\}", "", expression)
    return re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", r"\1", expression)


def metrics(expression):
    """Names of the metrics in a PromQL expression or in label_values(metric, label)."""
    expression = re.sub(r"label_values\((.*),[^,]*\)", r"\1", expression)
    words = re.findall(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(?![\w:]|\s*\()", without_texts(expression))
    return {word for word in words if "_" in word and word not in ("group_left", "group_right")}


def exported():
    """Names of all metrics that the programs export; of a histogram without its suffixes."""
    sources = "\n".join(path.read_text(encoding="utf-8") for folder in MAKERS for path in sorted((ROOT / folder).glob("*.[ch]*")))
    literals = set(re.findall(rf'"((?:{PREFIXES})_[a-z0-9_]+)"', sources))
    constants = re.findall(rf'(k\w+)\s*=\s*"((?:{PREFIXES})_[a-z0-9_]+)"', (ROOT / NAMES).read_text(encoding="utf-8"))
    return literals | {name for constant, name in constants if f"metric::{constant}" in sources}


def recorded():
    """{name: expression} of the recording rules."""
    groups = yaml.safe_load(RECORDING.read_text(encoding="utf-8"))["groups"]
    return {rule["record"]: rule["expr"] for group in groups for rule in group["rules"]}


def with_sources(names):
    """The names, with the metrics that the recorded ones among them are computed from."""
    rules, found = recorded(), set()
    while names:
        found |= names
        names = {source for name in names if name in rules for source in metrics(rules[name])} - found
    return found


def family(name, known):
    """The metric that a series belongs to: itself, or the histogram."""
    base = HISTOGRAM_SUFFIX.sub("", name)
    return name if name in known else base if base in known else None
