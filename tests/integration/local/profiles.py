"""Profiles: traces of the steps that were asked for, through a failure, and what is said where there can be none."""
import json
import os
import pathlib
import re
import signal
import statistics
import sys

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS / "bench" / "gpu"))
import checkpoints  # noqa: E402
import ledger  # noqa: E402
import overlap  # noqa: E402
from cases import expect  # noqa: E402
from local_run import BATCH, EPOCHS, SAMPLES, Run, expect_complete, manifest  # noqa: E402

STEPS_OF_AN_EPOCH = -(-SAMPLES // BATCH)


def check_trace(path, first, last, phases):
    """Its steps are those asked for, each with all phases and their operators within; in an epoch's last step not every rank has a sample."""
    ranges = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]
    end = lambda event: event["ts"] + event["dur"]
    within = lambda outer, event: outer["ts"] <= event["ts"] and end(event) <= end(outer)
    steps = sorted((event for event in ranges if event["name"].startswith("ProfilerStep#")), key=lambda event: event["ts"])
    expect([step["name"] for step in steps] == [f"ProfilerStep#{step}" for step in range(first, last + 1)],
           f"{path.name}: {[step['name'] for step in steps]}")
    for step in steps:
        if (int(step["name"].rpartition("#")[2]) + 1) % STEPS_OF_AN_EPOCH == 0:
            continue
        inside = [event for event in ranges if within(step, event)]
        for phase in phases:
            expect(any(event["name"] == phase for event in inside), f"{path.name}: {step['name']} has no {phase}")
        forward = next(event for event in inside if event["name"] == "forward")
        expect(any(event["name"].startswith("aten::") and within(forward, event) for event in inside), f"{path.name}: no operators")
    return ranges


def logs_of(folder):
    return "".join(path.read_text() for path in pathlib.Path(folder, "run").glob("*.log"))


def test_records_a_profile(folder):
    # With one checkpoint among its steps.
    path = manifest(folder, replicas=2, sections={"checkpoint": {"uri": f"file://{folder}/checkpoints", "intervalSteps": 4}})
    with Run(folder, path, {"LOCKSTEP_PROFILE": "41-45"}) as run:
        expect_complete(run)
    for rank in (0, 1):
        ranges = check_trace(pathlib.Path(folder, "checkpoints", "profile", f"steps-41-45-rank-{rank}.json"), 41, 45,
                             ["data", "forward", "backward", "reduce", "optimizer"])
        saves = [event for event in ranges if event["name"] == "checkpoint"]
        expect(len(saves) == 1, f"rank {rank}: {len(saves)} of checkpoint")
    expect(checkpoints.newest(pathlib.Path(folder, "checkpoints")), "no checkpoint was stored")


def hidden_share(step):
    """Of the time in which gradients travelled, that in which this rank computed, too."""
    _, *gradients = step.collectives  # the first is of the step's numbers
    expect(len(gradients) > 1, f"{step.name}: gradients in {len(gradients)} pieces")
    return overlap.milliseconds_beside(gradients, step.computation) / overlap.milliseconds(gradients)


def test_shows_gradients_travel_during_the_backward_pass(folder):
    model = {"name": "mlp", "mlp": {"hiddenSizes": [1024, 1024, 1024]}}  # 4 MB a layer: pieces of 4 and 7 MB
    with Run(folder, manifest(folder, replicas=2, model=model, globalBatchSize=256), {"LOCKSTEP_PROFILE": "20-29"}) as run:
        expect_complete(run, batch=256)
    shares = [hidden_share(step) for rank in (0, 1)
              for step in overlap.read(pathlib.Path(folder, "checkpoints", "profile", f"steps-20-29-rank-{rank}.json"))[0]]
    expect(len(shares) == 20 and statistics.median(shares) > 0.1, f"hidden behind computation: {[f'{share:.0%}' for share in shares]}")


def test_records_the_last_steps_beside_the_logs(folder):
    last = EPOCHS * STEPS_OF_AN_EPOCH - 1
    path = manifest(folder, replicas=1, strategy="localsgd", sync={"everySteps": 4})
    job = json.loads(path.read_text())
    del job["spec"]["checkpoint"]
    path.write_text(json.dumps(job))
    with Run(folder, path, {"LOCKSTEP_PROFILE": f"{last - 5}-{last}"}) as run:
        expect_complete(run)
    ranges = check_trace(pathlib.Path(folder, "run", "profile", f"steps-{last - 5}-{last}-rank-0.json"), last - 5, last,
                         ["data", "forward", "backward", "optimizer"])
    names = {event["name"] for event in ranges}
    expect(names >= {"reduce", "evaluate"}, "the end of the window or the evaluation after the last step is missing")


def test_records_on_where_a_rank_died(folder):
    model = {"name": "mlp", "mlp": {"hiddenSizes": [2048, 2048]}}  # slow enough to be met in the midst of it
    with Run(folder, manifest(folder, replicas=2, model=model), {"LOCKSTEP_PROFILE": "60-159"}) as run:
        run.until_step(62)
        os.kill(run.ranks()[1], signal.SIGKILL)
        expect_complete(run)
    broken = [r["step"] for r in ledger.read(run.ledger) if r["event"] == "commit" and r["round"] == 2]
    expect(60 < min(broken) < 159, f"the rank died at step {min(broken)}")
    traces = [json.loads(path.read_text())["traceEvents"] for path in pathlib.Path(folder, "checkpoints", "profile").iterdir()]
    recorded = [{event["name"] for event in trace if event["name"].startswith("ProfilerStep#")} for trace in traces]
    expect({f"ProfilerStep#{step}" for step in range(60, 160)} in recorded, f"the survivor has not recorded all steps: {recorded}")


def traces(folder):
    return {path.name for path in pathlib.Path(folder, "checkpoints", "profile").glob("steps-*.json")}


def ask_for_a_profile(run, folder):
    """Asks with a signal; the first and the last step of the traces, which all ranks have."""
    before, reached = traces(folder), ledger.newest_commit(run.ledger)
    run.process.send_signal(signal.SIGUSR2)
    run.until("a trace of each rank", lambda: len(traces(folder) - before) == 2)
    found = sorted(traces(folder) - before)
    first, last = map(int, re.fullmatch(r"steps-(\d+)-(\d+)-rank-0.json", found[0]).groups())
    expect(found[1] == f"steps-{first}-{last}-rank-1.json", f"the traces are of different steps: {found}")
    expect(first > reached and last - first == 4, f"step {reached} was committed before, and the traces are of {first} to {last}")
    return first, last


def test_records_when_asked(folder):
    # Never at its end before both are there. Beside the steps that were named before.
    path = manifest(folder, replicas=2, model={"name": "mlp", "mlp": {"hiddenSizes": [1024]}}, epochs=1000 * EPOCHS)
    with Run(folder, path, {"LOCKSTEP_PROFILE": "5-7"}) as run:
        run.until("the traces that were named before", lambda: len(traces(folder)) == 2)
        windows = [(5, 7), ask_for_a_profile(run, folder), ask_for_a_profile(run, folder)]
        expect(windows[1][1] < windows[2][0], f"the steps of two requests: {windows}")
        for first, last in windows:
            for rank in (0, 1):
                check_trace(pathlib.Path(folder, "checkpoints", "profile", f"steps-{first}-{last}-rank-{rank}.json"), first, last,
                            ["data", "forward", "backward", "reduce", "optimizer"])
        run.until_step(windows[2][1] + 1)
        expect(len(run.ranks()) == 2 and "round 2" not in run.output(), "the profiles disturbed the ranks")


def test_records_when_asked_whatever_the_strategy(folder):
    for strategy, more in (("localsgd", {"sync": {"everySteps": 4}}), ("pipeline", {"microBatchSize": 8})):
        own = f"{folder}/{strategy}"
        os.mkdir(own)
        model = {"name": "mlp", "mlp": {"hiddenSizes": [512, 512]}}
        with Run(own, manifest(own, replicas=2, strategy=strategy, model=model, epochs=1000 * EPOCHS, **more)) as run:
            run.until_step(20)
            first, last = ask_for_a_profile(run, own)
        for rank in (0, 1):
            check_trace(pathlib.Path(own, "checkpoints", "profile", f"steps-{first}-{last}-rank-{rank}.json"), first, last,
                        ["forward", "backward", "optimizer"])


def test_trains_where_no_profile_can_be_written(folder):
    os.makedirs(f"{folder}/checkpoints")
    pathlib.Path(folder, "checkpoints", "profile").write_text("in the way")
    with Run(folder, manifest(folder, replicas=2), {"LOCKSTEP_PROFILE": "10-12"}) as run:
        expect_complete(run)
    said = [line for line in logs_of(folder).splitlines() if "profile not stored" in line]
    expect(len(said) == 2 and all("profile/steps-10-12-rank-" in line for line in said), f"a warning of each rank expected: {said}")


def test_says_which_steps_cannot_be_profiled(folder):
    with Run(folder, manifest(folder, replicas=1), {"LOCKSTEP_PROFILE": "soon"}) as run:
        code = run.finish()
        words = 'LOCKSTEP_PROFILE: must name at most 100 steps by the first and the last, as in 100-104, not "soon"'
        expect(code == 2 and words in run.output(), f"exit code {code}\n{run.output()[-4000:]}")
    with Run(folder, manifest(folder, replicas=1), {"LOCKSTEP_PROFILE": "9990-9999"}) as run:
        expect_complete(run)
    expect("LOCKSTEP_PROFILE names steps after the last one" in logs_of(folder), logs_of(folder)[-2000:])
