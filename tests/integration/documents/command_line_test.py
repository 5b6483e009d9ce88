"""docs/reference/command-line.md has each command and each flag that the programs print with --help, with its default, and no other."""
import re
import subprocess

import documented
from build_folder import BIN, BUILD
from cases import LIMIT, expect

PAGE = documented.ROOT / "docs" / "reference" / "command-line.md"
PROGRAMS = {"lockstep": [BIN / "lockstep"], "kubectl lockstep": [BIN / "kubectl-lockstep"],
            "lockstep-operator": [BUILD / "operator" / "lockstep-operator"]}
# The operator writes it into pods; the page names it in passing.
INTERNAL = {"lockstep worker"}
OF_EVERY_PROGRAM = {"--help", "--version"}


def help_of(command):
    return subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=LIMIT, check=True).stdout


def flags(text):
    """{flag: default or None}"""
    rows = re.findall(r"^ +(?:-\w,)?(--[\w-]+)(.*(?:\n {20,}.*)?)", text, re.MULTILINE)
    defaults = {flag: re.match(r"(?: \w+)?(?::\S*?)?=(\S+)", rest) or re.search(r"\[([\w.]+)\]$", rest) for flag, rest in rows}
    return {flag: default and default[1] for flag, default in defaults.items() if flag not in OF_EVERY_PROGRAM}


def commands(name, command):
    """(name, its flags) of a program and all its subcommands."""
    text = help_of(command)
    yield name, flags(text)
    listed = re.search(r"^Subcommands:\n((?: +.*\n)+)", text, re.MULTILINE)
    for verb in re.findall(r"^  (\w[\w-]*)", listed[1], re.MULTILINE) if listed else ():
        yield from commands(f"{name} {verb}", [*command, verb])


def sections():
    parts = re.split(r"^##+ (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return {title.strip("`"): text for title, text in zip(parts[1::2], parts[2::2]) if title.startswith("`")}


def rows(section):
    """{flag: the cell of its default}"""
    found = {}
    for cells in re.findall(r"^\| ((?:`-\w`, )?`--[\w-]+`) \| (.*?) \|", section, re.MULTILINE):
        found[re.search(r"--[\w-]+", cells[0])[0]] = cells[1]
    return found


def test_the_page_has_each_command_and_each_flag():
    page = sections()
    found = {name: known for program, command in PROGRAMS.items() for name, known in commands(program, command) if name not in INTERNAL}
    expect(sum(map(len, found.values())) > 30, found)
    expect(set(page) == set(found), f"the page lacks {sorted(set(found) - set(page))} and has {sorted(set(page) - set(found))} too many")
    for name, known in found.items():
        written = rows(page[name])
        expect(set(written) == set(known), f"{name}: the page lacks {sorted(set(known) - set(written))} and has {sorted(set(written) - set(known))} too many")
        wrong = {flag: default for flag, default in known.items() if default and default not in written[flag]}
        expect(not wrong, f"{name}: defaults of --help that the page does not have: {wrong}")
