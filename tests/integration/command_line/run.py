"""The command lines of `lockstep` and `lockstep-operator`: what they say of mistakes, their help, what they complete, and `lockstep validate`."""
import copy
import json
import os
import pathlib
import subprocess

import pytest

from build_folder import BIN, BUILD
from cases import LIMIT, expect

JOB = {
    "apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "small"},
    "spec": {
        "worker": {"template": {"spec": {"containers": [{"name": "trainer", "image": "none"}]}}},
        "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 60},
    },
}


def run(program, *arguments, code=0, stdin=None):
    """What it wrote: (stdout, stderr)."""
    folder = BUILD / "operator" if program == "lockstep-operator" else BIN
    done = subprocess.run([folder / program, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=LIMIT)
    expect(done.returncode == code, f"{program} {arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


@pytest.mark.parametrize("words, says", [
    ((), "lockstep: a command is required"),
    (("rum",), 'lockstep: unknown command "rum": did you mean "run"?'),
    (("validate", "--forse", "x"), 'lockstep validate: unknown flag "--forse"'),
    (("run", "job.yaml", "--replcas=3"), 'lockstep run: unknown flag "--replcas": did you mean "--replicas"?'),
    (("run", "job.yaml", "--replicas=0"), "lockstep run: --replicas: "),
    (("run",), "lockstep run: FILE is required: a manifest or a script; or `-- COMMAND`"),
    (("run", "job.yaml", "--", "python3"), "lockstep run: FILE and `-- COMMAND` exclude each other"),
    (("run", "job.yaml", "--nproc=2"), "lockstep run: --nproc needs `-- COMMAND`"),
    (("scaling", "job.yaml"), "lockstep scaling: --replicas is required"),
    (("scaling", "job.yaml", "--replicas=1,x"), "lockstep scaling: --replicas: must be different numbers from 1 to 10000"),
    (("scaling", "job.yaml", "--replicas=1", "--steps=9"), "lockstep scaling: --steps: "),
    (("memory", "job.yaml"), "lockstep memory: --replicas is required"),
    (("completion", "tcsh"), "lockstep completion: SHELL: "),
])
def test_misuse_names_the_mistake_and_the_help(words, says):
    lines = run("lockstep", *words, code=2)[1].splitlines()
    command = says.partition(":")[0]
    expect(lines[0].startswith(says) and lines[1:] == [f"Run `{command} --help` for usage."], f"{lines}")


def test_the_operator_does_the_same():
    lines = run("lockstep-operator", "--leader-elct", code=2)[1].splitlines()
    expect(lines == ['lockstep-operator: unknown flag "--leader-elct": did you mean "--leader-elect"?',
                     "Run `lockstep-operator --help` for usage."], f"{lines}")


def commands():
    shown = run("lockstep", "--help")[0].partition("Subcommands:\n")[2].splitlines()
    return [line.split()[0] for line in shown if line.startswith("  ")]


def test_help_shows_each_command_with_an_example_and_no_internal_one():
    expect(commands() == ["run", "scaling", "memory", "validate", "convert", "models", "plot", "checkpoint", "completion"], f"{commands()}")
    for command in set(commands()) - {"checkpoint"}:
        text = run("lockstep", command, "--help")[0]
        expect("Example" in text and f"  lockstep {command}" in text.replace("<(", "  "), f"{command} has no example:\n{text}")


def written(folder, name, *jobs):
    path = pathlib.Path(folder, name)
    path.write_text("\n---\n".join(map(json.dumps, jobs)))
    return path


def named(name, **training):
    job = copy.deepcopy(JOB)
    job["metadata"]["name"] = name
    job["spec"]["training"].update(training)
    return job


def test_validate_takes_several_files_and_documents(folder):
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside"}}
    one, two = written(folder, "one.yaml", JOB), written(folder, "two.yaml", other, named("first"), named("second"))
    said = run("lockstep", "validate", one, two)[0].splitlines()
    expect(said == [f"{one}: small is valid", f"{two}: first is valid", f"{two}: second is valid"], f"{said}")

    wrong = written(folder, "wrong.yaml", named("first"), named("second", globalBatchsize=3), named("third", steps=-1))
    said, problems = run("lockstep", "validate", one, wrong, code=1)
    expect(said.splitlines() == [f"{one}: small is valid", f"{wrong}: first is valid"], said)
    expect(f'{wrong}: document 2 (second): spec.training.globalBatchsize: unknown field: did you mean "globalBatchSize"?\n' in problems, problems)
    expect(f"{wrong}: document 3 (third): spec.training.steps: " in problems, problems)

    misspelt = written(folder, "kind.yaml", {**JOB, "kind": "DistributedTrainingjob"})
    expect("kind: must be DistributedTrainingJob" in run("lockstep", "validate", misspelt, code=1)[1], "the kind is not checked")
    expect("has no DistributedTrainingJob" in run("lockstep", "validate", written(folder, "none.yaml", other), code=1)[1], "nothing to validate")
    expect("No such file" in run("lockstep", "validate", f"{folder}/absent.yaml", one, code=1)[1], "the file is absent")


def test_scaling_rejects_a_job_that_cannot_be_measured(folder):
    elastic = named("elastic")
    elastic["spec"]["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 4}
    elastic["spec"]["worker"]["replicas"] = 2
    path = written(folder, "elastic.yaml", elastic)
    said, problems = run("lockstep", "scaling", path, "--replicas=1,2,8", code=2)
    expect(said == "" and problems.splitlines() == [
        f"{path}: --replicas {size}: spec.worker.replicas: {size} must be within elasticPolicy, 2 to 4" for size in (1, 8)], problems)

    program = named("script")
    del program["spec"]["training"]
    program["spec"]["worker"]["template"]["spec"]["containers"][0]["command"] = ["true"]
    path = written(folder, "program.yaml", program)
    problems = run("lockstep", "scaling", path, "--replicas=1", code=2)[1]
    expect(problems == f"{path}: spec.training: is required: script runs a program of your own, which may write files while it is measured. "
           "In a cluster `kubectl lockstep scaling script` shows its speed, if it joins with the Python package\n", problems)
    expect("No such file" in run("lockstep", "scaling", f"{folder}/absent.yaml", "--replicas=1", code=2)[1], "the file is absent")


def test_validate_reads_standard_input():
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [named("first"), named("second", epochz=1)]})
    said, problems = run("lockstep", "validate", "-", stdin=listed, code=1)
    expect(said == "standard input: first is valid\n", said)
    expect(problems == 'standard input: document 2 (second): spec.training.epochz: unknown field: did you mean "epochs"?\n', problems)


def completed_by_bash(line):
    """What bash would offer behind this text, with the script that `lockstep completion bash` prints."""
    script = """
        source <(lockstep completion bash)
        read -ra COMP_WORDS <<<"$1"
        [[ $1 != *' ' ]] || COMP_WORDS+=("")
        COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
        _lockstep 2>/dev/null
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script, "bash", line], capture_output=True, text=True, timeout=LIMIT,
                          env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
    expect(done.returncode == 0 and not done.stderr, f"{line}: {done.stderr}")
    return done.stdout.split()


def test_bash_completes_commands_flags_and_values():
    expect(completed_by_bash("lockstep ") == commands(), f"{completed_by_bash('lockstep ')}")
    expect(completed_by_bash("lockstep va") == ["validate"], "not the command")
    expect(completed_by_bash("lockstep run --rep") == ["--replicas"], "not the flag")
    expect(completed_by_bash("lockstep completion ") == ["bash", "zsh", "fish"], "not the shells")
    expect(completed_by_bash("lockstep validate job") == [], "files are bash's own to complete")
    expect(completed_by_bash("lockstep wor") == [], "an internal command")
