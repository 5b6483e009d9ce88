""".ci/install-debian on a machine whose dpkg and apt are stand-ins: what it installs, and that no service starts meanwhile."""
import os
import pathlib
import subprocess
import tempfile

from cases import LIMIT, expect

ROOT = pathlib.Path(__file__).resolve().parents[3]

DPKG_QUERY = '[ "${@: -1}" != present ] || printf "install ok installed"'
# As invoke-rc.d does before it starts a service: it asks policy-rc.d, where there is one; 101 forbids the start.
APT_GET = """echo "$*" >>"$CALLS"
[ "$1" = install ] || exit 0
if [ -x /usr/sbin/policy-rc.d ] && ! /usr/sbin/policy-rc.d; then echo "service denied"; else echo "service started"; fi >>"$CALLS"
exit "$APT_RESULT"
"""


def install(*packages, policy="", apt_result=0):
    """(exit code, output, calls of apt-get, what is in /usr/sbin at the end), where /usr/sbin has only this policy-rc.d or nothing."""
    with tempfile.TemporaryDirectory(prefix="lockstep-install-") as name:
        folder = pathlib.Path(name)
        for program, text in (("dpkg-query", DPKG_QUERY), ("apt-get", APT_GET)):
            (folder / program).write_text(f"#!/usr/bin/env bash\n{text}\n")
            (folder / program).chmod(0o755)
        script = f"""mount -t tmpfs tmpfs /usr/sbin
            [ -z "{policy}" ] || {{ printf '#!/bin/sh\\n{policy}\\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; }}
            {ROOT}/.ci/install-debian {' '.join(packages)}
            result=$?
            ls /usr/sbin >{folder}/left
            exit $result"""
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        done = subprocess.run(["unshare", *user, "--mount", "bash", "-c", script], timeout=LIMIT, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(folder / "calls"), "APT_RESULT": str(apt_result)})
        calls = folder / "calls"
        return done.returncode, done.stdout, calls.read_text().splitlines() if calls.exists() else [], (folder / "left").read_text().split()


def test_installs_what_is_missing_without_starting_its_services():
    code, output, calls, left = install("present", "docker-registry")
    expect(code == 0, output)
    expect(calls[0].startswith("update") and calls[1].startswith("install") and calls[1].endswith(" docker-registry"), f"{calls}")
    expect(calls[2:] == ["service denied"], f"{calls}")
    expect(not left, f"{left} is left")


def test_leaves_nothing_when_apt_fails():
    code, _, _, left = install("docker-registry", apt_result=100)
    expect(code == 100 and not left, f"exit code {code}, {left} is left")


def test_keeps_the_rules_that_a_machine_has():
    code, output, calls, left = install("docker-registry", policy="exit 0")
    expect(code == 0, output)
    expect(calls[2:] == ["service started"] and left == ["policy-rc.d"], f"{calls}, {left}")


def test_asks_apt_nothing_where_all_is_present():
    code, output, calls, _ = install("present", "present")
    expect((code, output, calls) == (0, "Debian packages: all 2 present\n", []), f"{code} {output} {calls}")
