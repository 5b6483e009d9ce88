#!/usr/bin/env python3
"""Asks a Prometheus what Grafana would ask it to show the dashboards, and keeps the answers for draw.mjs.

    record.py ANSWERS.json --prometheus URL [--minutes 60] [--until UNIX-SECONDS] [--scrape-interval 15] [NAME=VALUE…]

NAME=VALUE chooses in a variable with one choice, such as job_name=mnist; without it the first choice is taken, as Grafana does. Variables
with several choices stay at All. --scrape-interval is what the data source in Grafana has under the same name.
"""
import argparse
import json
import math
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import dashboards  # noqa: E402

WIDTH = 500  # points of a graph that is a third of the page wide
ROUND_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600)


class Prometheus:
    """One server, one range of time."""

    def __init__(self, url, until, minutes, scrape_interval):
        self.url = url.rstrip("/")
        self.to, self.start = until, until - 60 * minutes
        wanted = max(scrape_interval, 60 * minutes / WIDTH)
        self.step = next((step for step in ROUND_STEPS if step >= wanted), ROUND_STEPS[-1])
        self.scrape_interval = scrape_interval

    def intervals(self, step):
        rate_interval = math.ceil(max(step + self.scrape_interval, 4 * self.scrape_interval))
        return {"__interval": f"{step}s", "__rate_interval": f"{rate_interval}s", "__range": f"{self.to - self.start:.0f}s"}

    def ask(self, path, **parameters):
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(address, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            sys.exit(f"{self.url} refuses {parameters}: {refused.read().decode()}")
        except OSError as problem:
            sys.exit(f"{self.url} does not answer: {problem}")

    def range(self, expression, step):
        return self.ask("query_range", query=expression, start=self.start, end=self.to, step=step)["result"]

    def instant(self, expression):
        return self.ask("query", query=expression, time=self.to)["result"]

    def choices(self, expression):
        """Of label_values(SELECTOR, LABEL)."""
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", expression).groups()
        found = self.ask("series", **{"match[]": selector, "start": self.start, "end": self.to})
        return sorted({series[label] for series in found if label in series})


def chosen(dashboard, prometheus, wanted):
    """{variable: (text that Grafana shows, value in queries)}"""
    result = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        name = variable["name"]
        values = {other: value for other, (_, value) in result.items()}
        choices = prometheus.choices(dashboards.substituted(variable["query"]["query"], values))
        if not choices:
            sys.exit(f"variable {name} of {dashboard['title']} has no choices: does {prometheus.url} scrape Lockstep?")
        value = wanted.get(name, choices[0])
        if not variable["includeAll"] and value not in choices:
            sys.exit(f"{name}={value}: there is {', '.join(choices)}")
        result[name] = ("All", variable["allValue"]) if variable["includeAll"] else (value, value)
    return result


def answers(dashboard, prometheus, wanted):
    choices = chosen(dashboard, prometheus, wanted)
    def of(query, step=prometheus.step):
        values = {**{name: value for name, (_, value) in choices.items()}, **prometheus.intervals(step)}
        expression = dashboards.substituted(query["expr"], values)
        return prometheus.instant(expression) if query.get("instant") else prometheus.range(expression, step)
    return {"variables": {name: text for name, (text, _) in choices.items()},
            "panels": {panel["title"]: {target["refId"]: of(target) for target in panel["targets"]}
                       for panel in dashboards.panels(dashboard)},
            "annotations": {a["name"]: of(a, int(a["step"].removesuffix("s"))) for a in dashboard["annotations"]["list"] if a["enable"]}}


def record(path, prometheus, wanted):
    known = {variable for dashboard in dashboards.load().values() for variable in dashboards.variables(dashboard)}
    for name in sorted(set(wanted) - known):
        sys.exit(f"{name}={wanted[name]}: no dashboard has this variable; there is {', '.join(sorted(known))}")
    found = {name: answers(dashboard, prometheus, wanted) for name, dashboard in dashboards.load().items()}
    pathlib.Path(path).write_text(json.dumps({"from": prometheus.start, "to": prometheus.to, "step": prometheus.step, "dashboards": found}))


def choice(text):
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers")
    parser.add_argument("choices", nargs="*", type=choice, metavar="NAME=VALUE")
    parser.add_argument("--prometheus", required=True, metavar="URL")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--until", type=float, default=time.time())
    parser.add_argument("--scrape-interval", type=float, default=15)
    given = parser.parse_intermixed_args()
    prometheus = Prometheus(given.prometheus, given.until, given.minutes, given.scrape_interval)
    record(given.answers, prometheus, dict(given.choices))


if __name__ == "__main__":
    main()
