"""crds/argocd/health.lua, run by Lua as Argo CD runs it: a global `obj`, a table returned."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
from cases import LIMIT, expect

SCRIPT = ROOT / "crds" / "argocd" / "health.lua"
CONDITIONS = ROOT / "runtime" / "common" / "api" / "conditions.h"
LUA = "lua5.4"


def lua_of(value):
    """A JSON value as Lua writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'["{key}"] = {lua_of(entry)}' for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua_of, value)) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def health(status, generation=1):
    job = {"metadata": {"generation": generation}} | ({} if status is None else {"status": status})
    program = (f"obj = {lua_of(job)}\nlocal health = dofile('{SCRIPT}')\n"
               "io.write(health.status, '|', health.message or '')")
    done = subprocess.run([LUA, "-"], input=program, capture_output=True, text=True, timeout=LIMIT, check=False)
    expect(done.returncode == 0, done.stderr)
    return tuple(done.stdout.split("|"))


def status_of(*kinds, generation=1, **others):
    """A status in which these conditions are true and others, given by name, have the given status."""
    conditions = [{"type": kind, "status": "True", "message": f"about {kind}"} for kind in kinds]
    conditions += [{"type": kind, "status": value, "message": "no"} for kind, value in others.items()]
    return {"observedGeneration": generation, "state": "Starting", "conditions": conditions}


def test_follows_the_conditions():
    for kinds, wanted in ((("Scheduled", "Progressing"), "Progressing"), (("Complete",), "Healthy"), (("Failed",), "Degraded"),
                          (("Stalled", "Progressing"), "Degraded"), (("Suspended",), "Suspended"),
                          (("Restarting", "Progressing"), "Progressing"), (("Complete", "Suspended"), "Healthy"), ((), "Progressing")):
        found, _ = health(status_of(*kinds))
        expect(found == wanted, f"{kinds}: {found}, not {wanted}")


def test_says_why():
    expect(health(status_of("Stalled", Suspended="False")) == ("Degraded", "about Stalled"), health(status_of("Stalled")))
    expect(health(status_of(Failed="False", Complete="Unknown")) == ("Progressing", "Starting"), "what is not true counts")


def test_a_status_of_yesterday_is_no_answer():
    expect(health(None)[0] == "Progressing", "a job without a status")
    expect(health({"observedGeneration": 1})[0] == "Progressing", "a status without conditions")
    expect(health(status_of("Complete", generation=1), generation=2)[0] == "Progressing", "the status of an older spec")


def test_names_only_conditions_that_there_are():
    known = re.findall(r'string_view k\w+ = "(\w+)"', CONDITIONS.read_text().split("namespace reason")[0])
    named = re.findall(r'\{ "(\w+)", "\w+" \}', SCRIPT.read_text())
    expect(named and set(named) <= set(known), f"{named}, known: {known}")
