"""The pages of docs/reference name what the sources have, and nothing else: metrics, conditions, reasons, events, variables, exit codes."""
import re

import dashboards
from cases import expect

ROOT = dashboards.ROOT
REFERENCE = ROOT / "docs" / "reference"


def page(name):
    return (REFERENCE / name).read_text()


def section(text, *headings):
    """What stands below these headings, up to the next of any level."""
    parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2]))
    return "\n".join(found[heading] for heading in headings)


def cells(text, column=0):
    """The cells of one column of all tables, heads included."""
    rows = [re.split(r"(?<!\\) *\| *", line.strip("| ")) for line in text.splitlines() if line.startswith("|")]
    return [row[column] for row in rows if len(row) > column]


def names(text, column=0):
    return {name for cell in cells(text, column) for name in re.findall(r"`([^`]+)`", cell)}


def expect_same(what, written, known):
    expect(len(known) > 5, f"the {what} of the sources were not found: {sorted(known)}")
    expect(written == known, f"{what}: the page lacks {sorted(known - written)}, and the sources do not have {sorted(written - known)}")


def source(*paths):
    return "\n".join((ROOT / path).read_text() for path in paths)


def test_metrics_are_those_that_the_programs_export_and_the_rules_record():
    new = {name for name in dashboards.recorded() if ":" in name}  # the others are former names of metrics
    expect_same("metrics", names(page("metrics.md")), dashboards.exported() | new)


def test_metrics_have_their_type():
    text = "\n".join(path.read_text() for folder in dashboards.MAKERS for path in sorted((ROOT / folder).glob("*.cc")))
    constants = dict(re.findall(r'(k\w+)\s*=\s*"(\w+)"', source(dashboards.NAMES)))
    made = re.findall(r'(?:BuildHistogram\(\)\s*\.Name|[A-Za-z]*Histogram)\((?:[a-z_]+, *\s*)?"(\w+)"', text)
    made += [constants[name] for name in re.findall(r"BuildHistogram\(\)\s*\.Name\(metric::(k\w+)\)", text)]
    written = {row[0] for row in zip(cells(page("metrics.md")), cells(page("metrics.md"), -1)) if row[1].startswith("Histogram")}
    expect_same("histograms", {name.strip("`") for name in written}, set(made))


def test_conditions_and_reasons_are_those_of_the_operator():
    text, header = page("events-and-conditions.md"), source("runtime/common/api/conditions.h")
    of_conditions, of_reasons = (set(re.findall(r'= *\n? *"(\w+)"', part)) for part in header.split("namespace reason {"))
    expect_same("conditions", names(section(text, "Conditions")), of_conditions)
    reasons = section(text, "Of `Failed`", "While the job waits", "Queue and suspension", "While the job trains", "At the end")
    expect_same("reasons", names(reasons), of_reasons)
    known = of_conditions | of_reasons | names(section(text, "States"))
    used = {word for column in (1, 2) for word in names(section(text, "Conditions"), column) if re.fullmatch(r"[A-Z]\w+", word)}
    expect(used <= known, f"no reasons: {sorted(used - known)}")
    states = set(re.findall(r'return "(\w+)"', source("runtime/common/api/conditions.cc")))
    expect_same("states", names(section(text, "States")), states)


def test_events_are_those_of_the_operator():
    made = source("operator/reconcile/notes.cc", "operator/reconcile/checkpoint_removal.cc")
    # One has its name from the reasons.
    made = made.replace("std::string(api::reason::kReplicaFailed)", '"ReplicaFailed"')
    known = {name: "Warning" if warns == "true" else "Normal" for warns, name in re.findall(r'(?:\{|Note\()(true|false), "(\w+)"', made)}
    text = section(page("events-and-conditions.md"), "Events")
    expect_same("events", names(text), set(known))
    types = {event.strip("`"): kind for event, kind in zip(cells(text), cells(text, 1)) if event.startswith("`")}
    expect(types == known, f"types of events: {types}, in the sources {known}")


def test_variables_are_those_that_the_programs_read():
    ours = set(re.findall(r'"(LOCKSTEP_\w+[A-Z])"', source("runtime/common/protocol/environment.h"))) | {"LOCKSTEP_TOKEN", "LOCKSTEP_ROUND"}
    stores = {word for file in sorted((ROOT / "runtime" / "storage").glob("*_settings.cc"))
              for word in re.findall(r'"((?:AWS|AZURE|GOOGLE|STORAGE)_\w+)"', file.read_text())}
    of_programs = set(re.findall(r'set\("(\w+)"', source("runtime/launch/program/program_life.cc")))
    written = names(page("environment.md"))
    lost = (ours | stores | of_programs) - written - names(page("environment.md"), 1)
    expect(not lost, f"the page lacks {sorted(lost)}")
    every = "\n".join(path.read_text() for folder in ("runtime", "operator") for path in (ROOT / folder).rglob("*") if path.suffix in (".cc", ".h"))
    unknown = {name for name in written if name.startswith("LOCKSTEP_") and name not in every}
    expect(not unknown, f"the sources do not have {sorted(unknown)}")


def test_exit_codes_are_those_of_the_protocol():
    known = set(re.findall(r"^  k\w+ = (\d+),", source("runtime/common/protocol/exit_codes.h"), re.MULTILINE))
    expect_same("exit codes", {cell for cell in cells(section(page("environment.md"), "Exit codes of a worker")) if cell.isdigit()}, known)


def test_fields_of_the_manifest_are_those_that_are_written():
    text = section(page("file-formats.md"), "`manifest.json`")
    known = set(re.findall(r'"([a-z]\w+)"', source("runtime/checkpoint/manifest.cc")))
    known.discard("loss_scale")  # a tensor
    described = names(text) | names(text, 1)
    expect(known <= described, f"the page lacks {sorted(known - described)}")
    expect(names(text) <= known | {"shards[]"}, f"no manifest has {sorted(names(text) - known)}")


def test_fields_of_the_history_are_those_that_are_read():
    known = set(re.findall(r'reader\.Read\("(\w+)"', source("runtime/common/protocol/history.cc")))
    expect_same("fields of the history", names(section(page("file-formats.md"), "`history.jsonl`")), known)
