"""`lockstep memory`: what it says follows from the model and the strategy, and is in bytes."""
import json
import pathlib
import subprocess

from build_folder import BIN
from cases import LIMIT, expect
from local_run import manifest

SHAPE = {"name": "mlp", "mlp": {"hiddenSizes": [512, 512, 512]}}
TRAINED = 784 * 512 + 512 + 2 * (512 * 512 + 512) + 512 * 10 + 10


def memory(folder, *arguments, code=0, **training):
    job = manifest(folder, **{"model": SHAPE, "optimizer": {"name": "adam"}, **training})
    done = subprocess.run([f"{BIN}/lockstep", "memory", str(job), *arguments], capture_output=True, text=True, timeout=LIMIT, cwd=folder)
    expect(done.returncode == code, f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def test_says_what_each_strategy_needs(folder):
    shown = json.loads(memory(folder, "--replicas", "4,1", "-o", "json")[0])
    expect(shown["trainedParameters"] == TRAINED and shown["leftOut"] == [], shown)
    sizes = {(size["strategy"], size["ranks"]): size for size in shown["sizes"]}
    expect(list(sizes) == [(strategy, ranks) for strategy in ("ddp", "zero1", "fsdp", "pipeline") for ranks in (1, 4)], sizes)
    for size in sizes.values():
        size["kept"] = size["total"] - size["gathered"]
    for ranks in (1, 4):
        ddp, zero1, fsdp = (sizes[strategy, ranks] for strategy in ("ddp", "zero1", "fsdp"))
        expect(ddp["kept"] == 16 * TRAINED and ddp["optimizer"] == 8 * TRAINED, ddp)
        for each, size in ((8 + 20 / ranks, zero1), (16 / ranks, fsdp)):
            expect(abs(size["kept"] - each * TRAINED) <= 0.01 * each * TRAINED, f"{each} bytes for each of {TRAINED}: {size}")
    expect(sizes["pipeline", 1]["kept"] == 16 * TRAINED and sizes["pipeline", 4]["kept"] < 10 * TRAINED, sizes)
    expect(not pathlib.Path(folder, "run").exists(), "it trains nothing")


def test_shows_a_table_and_what_is_left_out(folder):
    output, _ = memory(folder, "--replicas", "1,2", optimizer={"name": "muon", "momentum": 0.95})
    lines = output.splitlines()
    expect(lines[0] == f"Model mlp: {TRAINED} trained parameters; optimizer muon.", output)
    expect(lines[2].split() == ["STRATEGY", "RANKS", "PARAMETERS", "GRADIENTS", "OPTIMIZER", "UNDO", "GATHERED", "TOTAL", "HOST"], output)
    expect(lines[3].split()[:2] == ["ddp", "1"] and "MiB" in lines[3], output)
    expect(any(line.startswith("fsdp is left out: spec.training") for line in lines), output)


def test_a_model_that_cannot_be_made_says_why(folder):
    _, error = memory(folder, "--replicas", "1", code=1, data={"format": "idx", "path": f"{folder}/nothing"})
    expect(error.startswith("lockstep memory: spec.training.data.path: ") and len(error.splitlines()) == 1, error)


def test_a_program_of_ones_own_is_rejected(folder):
    job = json.loads(pathlib.Path(manifest(folder)).read_text())
    del job["spec"]["training"], job["spec"]["checkpoint"]
    job["spec"]["worker"]["template"]["spec"]["containers"][0]["command"] = ["python3", "train.py"]
    path = pathlib.Path(folder, "program.json")
    path.write_text(json.dumps(job))
    done = subprocess.run([f"{BIN}/lockstep", "memory", path, "--replicas", "1"], capture_output=True, text=True, timeout=LIMIT)
    expect(done.returncode == 2 and "spec.training: is required" in done.stderr, done.stderr)
