"""`lockstep run` with real processes: complete, lose a rank, a worker, all ranks at once, one with a standby, stop and resume, a folder of
images, localsgd, bad input; the history that is left, and the commands that run no job.
"""
import concurrent.futures
import contextlib
import gzip
import json
import math
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import time
import xml.etree.ElementTree
import zlib

import checkpoints
import ledger
from build_folder import BIN
from cases import LIMIT, expect
from local_run import BATCH, EPOCHS, LONGER, SAMPLES, Run, children, expect_complete, logged, manifest, seconds_without_commit, slow_manifest, stop, unfinished


def test_completes(folder):
    with Run(folder, manifest(folder, replicas=2)) as run:
        run.until("two ranks", lambda: len(run.ranks()) == 2)
        threads = [pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"OMP_NUM_THREADS=")[1].split(b"\0")[0] for pid in run.ranks()]
        expect(sum(map(int, threads)) <= max(2, os.cpu_count()), f"ranks that share this machine use {threads} threads")
        expect_complete(run)
        expect(checkpoints.newest(pathlib.Path(folder, "checkpoints")), "no checkpoint was stored")


def read_all(descriptor):
    content = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody can write to it any more
        while chunk := os.read(descriptor, 4096):
            content += chunk
    return content.decode()


def test_shows_a_bar_on_a_terminal_and_logs_the_same(folder):
    ours, theirs = pty.openpty()
    with concurrent.futures.ThreadPoolExecutor() as reader:
        with Run(folder, manifest(folder, replicas=2), {"TERM": "xterm"}, terminal=theirs) as run:
            os.close(theirs)
            shown = reader.submit(read_all, ours)
            expect_complete(run)
    os.close(ours)
    last = shown.result().replace("\r\n", "\n").splitlines()[-2:]
    expect(re.search(rf"\repoch {EPOCHS}/{EPOCHS} \[=+\] 100 %  loss \S+  \S+ samples/s", "\r" + last[0].replace("\x1b[K", "")), f"{last}")
    expect(last[1].startswith("complete after"), f"{last}")
    steps = logged(folder, "training")
    expect({line["rank"] for line in steps} == {0}, f"{steps}")
    expect(steps[-1]["step"] == steps[-1]["total_steps"] and steps[-1]["epoch"] == EPOCHS, f"{steps}")
    configurations = [json.loads(line["training"]) for line in logged(folder, "configuration")]
    expect([c["globalBatchSize"] for c in configurations] == [BATCH], f"{configurations}")


def test_writes_the_lines_of_all_ranks_where_asked(folder):
    with Run(folder, manifest(folder, replicas=2, sections={"observability": {"logs": "All"}})) as run:
        expect_complete(run)
    for message in ("round begins", "training"):
        ranks = {line["rank"] for line in logged(folder, message)}
        expect(ranks == {0, 1}, f"{message}: written by ranks {ranks}")


def test_steps_of_a_slow_manifest_wait_until_the_test_is_ready(folder):
    """The other cases act on such a job while it trains."""
    steps, milliseconds = 20, 25
    with Run(folder, slow_manifest(folder, replicas=2, milliseconds=milliseconds, epochs=LONGER)) as run:
        run.until_step(steps)
        times = [r["time"] for r in ledger.read(run.ledger) if r["event"] == "commit" and r["step"] in (0, steps)]
        expect(max(times) - min(times) >= steps * milliseconds / 1000, f"{steps} steps took {max(times) - min(times)} s")
        expect_complete(run, LONGER)


def test_survives_a_killed_rank(folder):
    with Run(folder, slow_manifest(folder, epochs=LONGER)) as run:
        run.until_step(60)
        before = run.ranks()
        expect(len(before) == 3, f"3 rank processes expected, {len(before)} found")
        killed_at = time.time()
        os.kill(before[1], signal.SIGKILL)
        run.until("the rank's return", lambda: len(run.ranks()) == 3 and before[1] not in run.ranks())
        expect(set(run.ranks()) >= {before[0], before[2]}, "a survivor's process was replaced")
        expect_complete(run, LONGER)
        gap = seconds_without_commit(run, killed_at)
        if gap is not None:
            print(f"     killed rank -> survivors' next step: {gap:.3f} s")


def test_survives_a_killed_worker(folder):
    with Run(folder, slow_manifest(folder, epochs=LONGER)) as run:
        run.until_step(60)
        survivors = run.ranks()
        victim = run.workers()[2]
        survivors = [pid for pid in survivors if pid not in [p for p, _ in children(victim)]]
        os.kill(victim, signal.SIGKILL)
        run.until("the worker's return", lambda: victim not in run.workers() and len(run.ranks()) == 3)
        expect(set(run.ranks()) >= set(survivors), "a survivor's process was replaced")
        expect_complete(run, LONGER)


def slot_of(worker):
    return int(pathlib.Path(f"/proc/{worker}/environ").read_bytes().split(b"LOCKSTEP_SLOT=")[1].split(b"\0")[0])


def test_promotes_a_standby(folder):
    with Run(folder, slow_manifest(folder, replicas=2, minimum=2, sections={"standbyReplicas": 1}, epochs=LONGER)) as run:
        run.until("three ranks", lambda: len(run.ranks()) == 3)
        run.until_step(60)
        entered = {slot: pathlib.Path(folder, "run", f"local-worker-{slot}.log") for slot in range(3)}
        waiting = lambda: [slot for slot, log in entered.items() if "rank entered the round" not in log.read_text()]
        run.until("two members' word that they are in", lambda: len(waiting()) <= 1)
        outside = waiting()
        expect(len(outside) == 1, f"one should stand by, outside are {outside}")
        victim = next(worker for worker in run.workers() if slot_of(worker) != outside[0])
        os.kill(children(victim)[0][0], signal.SIGKILL)
        run.until("the standby's entry", lambda: "rank entered the round" in entered[outside[0]].read_text())
        expect_complete(run, LONGER)
        commits = [r for r in ledger.read(run.ledger) if r["event"] == "commit"]
        expect({r["rank"] for r in commits} == {0, 1}, "the world grew beyond its places")
        expect({r["round"] for r in commits} == {1, 2}, "the dead one's return cost a round")


def test_restarts_from_the_checkpoint_when_all_ranks_die(folder):
    with Run(folder, slow_manifest(folder, epochs=LONGER)) as run:
        run.until("a checkpoint", lambda: checkpoints.newest(pathlib.Path(folder, "checkpoints")))
        for pid in run.ranks():
            os.kill(pid, signal.SIGKILL)
        expect_complete(run, LONGER)
        expect('"checkpoint"' in "".join(p.read_text() for p in pathlib.Path(folder, "run").glob("*.log")),
               "no rank says that its state came from a checkpoint")


def test_stops_on_sigterm_and_resumes(folder):
    path = slow_manifest(folder, epochs=LONGER)
    with Run(folder, path) as run:
        run.until_step(50)
        stop(run, folder)
    with Run(folder, path) as run:
        expect_complete(run, LONGER)


def test_stops_without_saving_where_told_so(folder):
    section = {"checkpoint": {"uri": f"file://{folder}/checkpoints", "onTermination": "None"}}
    with Run(folder, slow_manifest(folder, sections=section, epochs=LONGER)) as run:
        run.until_step(20)
        run.process.send_signal(signal.SIGTERM)
        expect(run.finish() == 143, f"exit code {run.process.returncode}")
    expect(not checkpoints.newest(pathlib.Path(folder, "checkpoints")), "it saved all the same")


def test_saves_when_asked(folder):
    stored = pathlib.Path(folder, "checkpoints")
    with Run(folder, slow_manifest(folder, sections={"checkpoint": {"uri": f"file://{stored}"}}, epochs=LONGER)) as run:
        run.until_step(20)
        expect(not checkpoints.newest(stored), "there are no intervals, and yet a checkpoint")
        reached = ledger.newest_commit(run.ledger)
        run.process.send_signal(signal.SIGUSR1)
        run.until("the checkpoint", lambda: checkpoints.newest(stored))
        step, _ = checkpoints.newest(stored)
        expect(step > reached, f"step {reached} was committed before, and the checkpoint is of step {step}")
        run.until_step(step + 1)


def test_ends_when_it_is_good_enough(folder):
    epochs = 50
    with Run(folder, manifest(folder, replicas=2, epochs=epochs, evaluation={"everyEpochs": 8}, earlyStop={"target": 0.9})) as run:
        run.until_step(20)
        os.kill(run.ranks()[1], signal.SIGKILL)  # all that are there at the end end together
        expect(run.finish() == 0, run.output()[-4000:])
    step, checkpoint = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    done, rest = divmod(step, -(-SAMPLES // BATCH))
    expect(rest == 0 and 0 < done < epochs, f"it ended after {step} steps")
    best = json.loads((checkpoint / "manifest.json").read_text())["evaluations"]["best"]
    expect(best >= 0.9, f"it ended at an accuracy of {best}")
    problems = ledger.check_exactly_once(run.ledger, SAMPLES, BATCH, done)
    expect(not problems, "; ".join(problems))
    print(f"     ended after {done} epochs of {epochs} at an accuracy of {best}")


def test_one_and_three_ranks_learn_the_same(folder):
    losses = {}
    for replicas in (1, 3):
        place = f"{folder}/{replicas}"
        os.makedirs(place)
        with Run(place, manifest(place, replicas=replicas)) as run:
            expect_complete(run)
            losses[replicas] = float(run.output().rpartition("test accuracy ")[2].partition("loss ")[2].split()[0])
    difference = abs(losses[1] - losses[3])
    expect(difference <= 1e-3 * max(1.0, losses[1]), f"final test losses differ: {losses}")


LOCAL_SGD, WINDOW = {"strategy": "localsgd", "evaluation": None}, 25


def kill_inside_a_window(run, victim, steps):
    """Ends the process with SIGKILL where it has some steps of a full window behind it, not all; returns those. The job's last window is shorter."""
    found = []

    def is_inside():
        os.kill(victim, signal.SIGSTOP)
        found[:] = unfinished(victim)
        if 2 <= len(found) < WINDOW - 2 and found[0] + WINDOW <= steps:
            return True
        os.kill(victim, signal.SIGCONT)
        return False

    run.until("a rank inside a window", is_inside)
    os.kill(victim, signal.SIGKILL)
    return found


def test_local_sgd_takes_a_window_again_where_a_rank_died_in_it(folder):
    total = LONGER * -(-SAMPLES // BATCH)
    training = {**LOCAL_SGD, "sync": {"everySteps": WINDOW}, "epochs": LONGER}
    checkpoint = {"checkpoint": {"uri": f"file://{folder}/checkpoints", "intervalSteps": 2 * WINDOW}}
    with Run(folder, slow_manifest(folder, sections=checkpoint, **training)) as run:
        run.until_step(2 * WINDOW)
        before = run.ranks()
        steps = kill_inside_a_window(run, before[1], total)
        run.until("the rank's return", lambda: len(run.ranks()) == 3 and before[1] not in run.ranks())
        expect(set(run.ranks()) >= {before[0], before[2]}, "a survivor's process was replaced")
        expect_complete(run, LONGER)
    records = ledger.read(run.ledger)
    window = range(steps[0], steps[0] + WINDOW)
    expect(steps[0] % WINDOW == 0, f"a window begins at {steps[0]}")
    rounds = lambda step, event: {r["round"] for r in records if r["step"] == step and r["event"] == event}
    killed_in = min(rounds(steps[0], "contribute"))
    again = [step for step in window if min(rounds(step, "commit")) > killed_in]
    expect(again == list(window), f"of the steps {window} these were taken again: {again}")
    twice = [step for step in range(total) if len(rounds(step, "commit")) != 1]
    expect(not twice, f"steps that were committed in more than one round, or in none: {twice}")
    print(f"     killed after {len(steps)} steps of the window from {steps[0]} on")


def test_local_sgd_resumes_with_its_outer_step(folder):
    training = {**LOCAL_SGD, "sync": {"everySteps": WINDOW, "outer": {"learningRate": 0.7, "momentum": 0.5}}}
    path = slow_manifest(folder, replicas=2, epochs=LONGER, **training)
    with Run(folder, path) as run:
        run.until_step(2 * WINDOW)
        _, checkpoint = stop(run, folder)
    stored = b"".join(shard.read_bytes() for shard in checkpoint.glob("*.safetensors"))
    expect(b"outer.momentum.fc" in stored, "the outer momentum is not in the checkpoint")
    with Run(folder, path) as run:
        expect_complete(run, LONGER)


def test_localsgd_and_async_learn_what_ddp_does(folder):
    training = {"data": {"format": "idx", "path": "/usr/share/datasets/fashion-mnist"}, "globalBatchSize": 128, "epochs": 3,
                "optimizer": {"name": "sgd", "learningRate": 0.05, "momentum": 0.9}, "schedule": {"name": "cosine"}, "evaluation": {"everyEpochs": 3}}
    accuracy = {}
    for name, more in {"ddp": {}, "async": {"strategy": "async"}, "localsgd": {"strategy": "localsgd", "sync": {"everySteps": 16}},
                       "diloco": {"strategy": "localsgd", "sync": {"everySteps": 16, "outer": {"momentum": 0.5}}}}.items():
        place = f"{folder}/{name}"
        os.makedirs(place)
        with Run(place, manifest(place, replicas=2, **training, **more)) as run:
            expect(run.finish() == 0, run.output()[-4000:])
            accuracy[name] = float(run.output().rpartition("test accuracy ")[2].partition(",")[0])
    expect(accuracy["ddp"] > 0.8, f"{accuracy}")
    for name in ("async", "localsgd", "diloco"):
        expect(accuracy[name] >= accuracy["ddp"] - 0.01, f"{accuracy}")
    print(f"     accuracy on Fashion-MNIST: {accuracy}")


def png(pixels, side):
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    rows = b"".join(b"\0" + pixels[row * side:(row + 1) * side] for row in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)  # grey
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write_images(folder, training=SAMPLES):
    """Images of Fashion-MNIST as PNG files, in a folder for each class."""
    side, classes = 28, 10
    for part, name, count in (("train", "train", training), ("test", "t10k", 500)):
        read = lambda kind, skip: gzip.open(f"/usr/share/datasets/fashion-mnist/{name}-{kind}-ubyte.gz").read()[skip:]
        images, labels = read("images-idx3", 16), read("labels-idx1", 8)
        for label in range(classes):
            os.makedirs(f"{folder}/{part}/{label}")
        for i in range(count):
            content = png(images[i * side * side:(i + 1) * side * side], side)
            pathlib.Path(folder, part, str(labels[i]), f"{i:05}.png").write_bytes(content)
    return {"format": "imageFolder", "path": folder, "imageFolder": {"imageSize": side}, "workers": 2}


SMALL_CNN = {"model": {"name": "cnn", "cnn": {"channels": [8, 16], "hiddenSize": 32}},
             "optimizer": {"name": "adamw", "learningRate": 0.004}}


def test_learns_from_a_folder_of_images(folder):
    data = write_images(f"{folder}/images")
    epochs = 3 * EPOCHS
    with Run(folder, manifest(folder, replicas=2, data=data, epochs=epochs, evaluation={"everyEpochs": epochs}, **SMALL_CNN)) as run:
        run.until_step(60)
        victim = run.ranks()[1]
        os.kill(victim, signal.SIGKILL)
        run.until("the rank's return", lambda: len(run.ranks()) == 2 and victim not in run.ranks())
        expect_complete(run, epochs)
        accuracy = float(run.output().rpartition("test accuracy ")[2].partition(",")[0])
    expect(accuracy >= 0.6, f"the accuracy is {accuracy}; chance has 0.1")
    print(f"     {epochs} epochs of {SAMPLES} images: accuracy {accuracy}")


def test_names_an_image_that_is_damaged(folder):
    data = write_images(f"{folder}/images", training=320)
    files = sorted(pathlib.Path(folder, "images", "train").rglob("*.png"))
    for damaged in (files[0], files[-1]):  # the first is looked at before the first step
        sound = damaged.read_bytes()
        damaged.write_bytes(sound[:len(sound) // 2])
        with Run(folder, manifest(folder, replicas=2, data=data, **SMALL_CNN)) as run:
            code = run.finish()
            expect(code == 3, f"exit code {code}\n{run.output()[-4000:]}")
            expect(f"spec.training.data.path: {damaged} is damaged" in run.output(), run.output()[-4000:])
        damaged.write_bytes(sound)
        shutil.rmtree(f"{folder}/checkpoints", ignore_errors=True)


def test_names_what_is_wrong(folder):
    cases = {
        "spec.training.data.path": {"data": {"format": "idx", "path": "/nowhere"}},
        "spec.training.globalBatchSize": {"globalBatchSize": -1},
        "spec.training.precision": {"precision": "fp8"},
        "spec.training.modle": {"modle": {}},
    }
    for field, training in cases.items():
        with Run(folder, manifest(folder, **training)) as run:
            code = run.finish()
            expect(code in (2, 3), f"{field}: exit code {code}\n{run.output()[-4000:]}")
            expect(field in run.output(), f"{field} is not named:\n{run.output()[-4000:]}")


def test_says_where_training_diverged(folder):
    # Weight decay beyond 2 / learning rate multiplies the weights, here by a million in each step.
    growing = {"name": "sgd", "learningRate": 1000, "weightDecay": 1000}
    with Run(folder, manifest(folder, replicas=2, optimizer=growing)) as run:
        code = run.finish()
        expect(code == 3, f"exit code {code}\n{run.output()[-4000:]}")
        for part in ("training diverged", "rank 0: gradient of fc", "rank 1: gradient of fc",
                     "spec.training.optimizer.learningRate"):
            expect(part in run.output(), f"{part} is not said:\n{run.output()[-4000:]}")
    logs = "".join(path.read_text() for path in pathlib.Path(folder, "run").glob("*.log"))
    skipped = [line for line in logs.splitlines() if "step skipped" in line]
    expect(skipped and all("gradient of fc" in line for line in skipped), f"the log of skipped steps: {skipped}")


def lockstep(*arguments, **environment):
    """(exit code, what it said) of a command that runs no job."""
    done = subprocess.run([f"{BIN}/lockstep", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout


def test_lists_the_models(folder):
    code, output = lockstep("models")
    expect(code == 0, output)
    entries = {entry.split()[0]: entry for entry in output.split("\n\n")[1:]}
    # Each that it lists can be named in a manifest, and what cannot be named is not listed.
    sections = {"plugin": {"path": "/models/libmine.so", "name": "mine"}, "torchscript": {"path": "/models/m.pt"}}
    for name in [*entries, "alexnet"]:
        section = {name: sections[name]} if name in sections else {}
        data = {"data": {"format": "tokens", "path": "/data"}} if name == "gpt" else {}
        code, said = lockstep("validate", manifest(folder, model={"name": name, **section}, **data))
        expect((code == 0) == (name in entries), f"{name}: {said}")
    for name, default in {"mlp.hiddenSizes": "[128]", "cnn.dropout": "0.25", "gpt.contextLength": "1024", "plugin.path": "(required)",
                          "torchscript.path": "(required)"}.items():
        lines = [line.split() for line in entries[name.partition(".")[0]].splitlines()]
        expect([name, default] in lines, f"{name} {default} is not in:\n{output}")


def history(folder):
    lines = pathlib.Path(folder, "checkpoints", "history.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return {kind: [record for record in records if record["kind"] == kind] for kind in ("step", "evaluation", "round")}


def test_leaves_a_history_to_plot(folder):
    def is_stored():
        """A checkpoint behind the round after the kill: what follows a checkpoint is reported again."""
        newest = (checkpoints.newest(pathlib.Path(folder, "checkpoints")) or [0])[0]
        return newest >= 80 and any("signal 9" in r.get("cause", "") and r["step"] <= newest for r in history(folder)["round"])

    with Run(folder, slow_manifest(folder, epochs=LONGER, evaluation={"everyEpochs": LONGER // 2})) as run:
        run.until_step(5)
        os.kill(run.ranks()[1], signal.SIGKILL)
        run.until("the rank's return", lambda: len(run.ranks()) == 3)
        run.until("a checkpoint of step 80 or later, and the round before it", is_stored)
        for pid in run.ranks():
            os.kill(pid, signal.SIGKILL)
        expect_complete(run, LONGER)
    reported = history(folder)
    total = LONGER * -(-SAMPLES // BATCH)
    steps = [record["step"] for record in reported["step"]]
    # A step that a killed rank alone had finished is in no record.
    expect(steps == sorted(set(steps)) and steps[0] == 1 and steps[-1] == total and len(steps) >= total - 1,
           f"each of {total} steps should be reported once, in order: {steps}")
    expect(reported["step"][-1]["loss"] < reported["step"][0]["loss"], "the loss did not fall")
    expect(all(record["samplesPerSecond"] > 0 for record in reported["step"]), "a step without a speed")
    shares = [record["communicationRatio"] for record in reported["step"]]
    expect(0 <= min(shares) < max(shares) < 1, f"of each step, these shares were communication: {shares}")
    evaluations = [(record["step"], record["epoch"]) for record in reported["evaluation"]]
    expect(evaluations == [(total // 2, LONGER / 2), (total, LONGER)], f"evaluations {evaluations}")
    expect(reported["evaluation"][-1]["accuracy"] > 0.5, reported["evaluation"])
    restarts = [record for record in reported["round"] if record["source"] == "checkpoint"]
    expect(len(restarts) == 1 and restarts[0]["step"] >= 80, f"rounds from a checkpoint: {restarts}")
    in_place = [record for record in reported["round"] if "signal 9" in record.get("cause", "") and record["source"] in ("kept", "peer")]
    expect(in_place, f"no round says that a rank was killed before it: {reported['round']}")
    # As a picture.
    for path in (f"{folder}/checkpoints", f"file://{folder}/checkpoints", f"{folder}/checkpoints/history.jsonl"):
        code, output = lockstep("plot", path, "-o", f"{folder}/{len(path)}.svg")
        expect(code == 0 and f"{len(steps)} steps, 2 evaluations, {len(reported['round'])} rounds" in output, output)
        picture = xml.etree.ElementTree.parse(f"{folder}/{len(path)}.svg").getroot()
        charts = {group.get("id"): group for group in picture if group.get("class") == "chart"}
        expect(list(charts) == ["loss", "accuracy", "samples/s"], f"charts {list(charts)}")
        points = [len(line.get("points").split()) for line in charts["loss"] if line.tag.endswith("polyline")]
        expect(points == [len(steps), 2], f"points of the loss: {points}")
        marks = [group.get("class") for group in picture if group.get("class", "").startswith("round")]
        expect(len(marks) == len(reported["round"]) and marks.count("round restart") == 1, f"marks {marks}")


def test_says_what_cannot_be_plotted(folder):
    good = '{"kind":"step","time":"2026-01-01T00:00:00Z","round":1,"world":1,"step":1,"epoch":0.1,"loss":2,"samplesPerSecond":9}'
    texts = {"bad": f"{good}\n{good[:20]}\n", "typo": f"{good}\n{good}\n" + good.replace('"step":1', '"step":"x"'), "empty": "",
             "rounds": '{"kind":"round","time":"2026-01-01T00:00:00Z","step":0}\n', "good": good}
    for name, text in texts.items():
        pathlib.Path(folder, name).write_text(text)
    cases = {
        ("nowhere",): ["nowhere: there is no such file", "history.jsonl"],
        ("",): ["/history.jsonl: there is no such file", "spec.checkpoint.uri"],
        ("bad",): ["bad: line 2: is not JSON"],
        ("typo",): ["typo: line 3: step: must be an integer, not \"x\""],
        ("empty",): ["empty: holds no step and no evaluation"],
        ("rounds",): ["rounds: holds no step and no evaluation"],
        ("good", "-o", f"{folder}/no/such/folder.svg"): ["no/such/folder.svg", "-o"],
    }
    for (name, *more), parts in cases.items():
        code, output = lockstep("plot", pathlib.Path(folder, name), *(more or ["-o", f"{folder}/out.svg"]))
        expect(code == 2 and all(part in output for part in parts), f"{name}: exit code {code}, {output}")
        expect(not pathlib.Path(folder, "out.svg").exists(), f"{name}: a picture was drawn")
    code, output = lockstep("plot", "s3://bucket/job")
    expect(code == 2 and "is not on this machine" in output, output)
    code, output = lockstep("plot", f"{folder}/good", "-o", f"{folder}/out.pdf")
    expect(code == 2 and "out.pdf: a picture's name must end in .svg or .png" in output, output)
    code, output = lockstep("plot", f"{folder}/good", "-o", f"{folder}/out.png", PATH="")
    expect(code == 2 and "rsvg-convert" in output and "librsvg2-bin" in output, output)
    expect(not list(pathlib.Path(folder).glob("out.*")), "something is left behind")
    code, output = lockstep("plot", f"{folder}/good", "-o", f"{folder}/out.svg")
    expect(code == 0 and pathlib.Path(folder, "out.svg").exists(), output)
    code, output = lockstep("plot", f"{folder}/good", "-o", f"{folder}/out.png")
    picture = pathlib.Path(folder, "out.png").read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    expect(code == 0 and picture.startswith(b"\x89PNG") and width > 300 and height > 300, f"{output}, {width} x {height}")
    expect(sorted(path.name for path in pathlib.Path(folder).glob("out.*")) == ["out.png", "out.svg"], "something is left behind")


def test_saves_as_often_as_pays_off(folder):
    between_failures, seen = 2, set()

    def some_checkpoints():
        seen.add(checkpoints.newest(pathlib.Path(folder, "checkpoints")))
        return len(seen) > 4

    automatic = {"uri": f"file://{folder}/checkpoints", "interval": "Auto", "meanTimeBetweenFailuresSeconds": between_failures}
    with Run(folder, manifest(folder, replicas=2, sections={"checkpoint": automatic}, epochs=1_000_000)) as run:
        run.until("some checkpoints", some_checkpoints)
        stop(run, folder)
    logs = "".join(path.read_text() for path in pathlib.Path(folder, "run").glob("*.log"))
    adapted = [json.loads(line) for line in logs.splitlines() if "checkpoint interval adapted to the cost of saves" in line]
    expect(adapted, "nobody says when checkpoints are due")
    for first in {line["pod"]: line for line in reversed(adapted)}.values():
        best = min(between_failures, math.sqrt(2 * first["stall_seconds"] * between_failures))
        expect(math.isclose(first["interval_seconds"], max(best, first["store_seconds"]), rel_tol=1e-3), f"{first}")


def test_trains_where_no_history_can_be_written(folder):
    os.makedirs(f"{folder}/checkpoints/history.jsonl")
    with Run(folder, manifest(folder, replicas=2)) as run:
        expect_complete(run)
    expect(checkpoints.newest(pathlib.Path(folder, "checkpoints")), "no checkpoint was stored")
    logs = "".join(path.read_text() for path in pathlib.Path(folder, "run").glob("*.log"))
    said = [line for line in logs.splitlines() if "history not written" in line]
    expect(len(said) == 1 and "history.jsonl" in said[0], f"one warning expected: {said}")
