#!/usr/bin/env python3
"""What one GPU trains: Lockstep compared with DistributedDataParallel in Python, the same model, batch and release of PyTorch.

gpu.py [--only NAME…] [--against VARIANT…] [--turns N] [--seconds S] [--small]    prints medians and ratios

gpt2         GPT-2 124M in bf16, 32 sequences of 1024 bytes: tokens per second, MFU
resnet50     ResNet-50 in bf16, 256 random images of 224 x 224: images per second
tiny         an MLP of 784-64-10, 1 sample: microseconds of a step, which are nearly all overhead
start        GPT-2 124M: process start -> first finished step
checkpoint   a GPT with 10 GB of weights and moments in a folder: how long a save holds the training; bench/checkpoint explains the line

Everything runs in one process with one GPU, over NCCL. Measured as in bench/step, whose variants of DDP these are; "lockstep graph" replays
a step as a CUDA graph. Programs: those of tests/gpu/README.md. --small: the same cases in small on the CPU, with those of the preset
release; it shows that the bench works, and nothing of a GPU.
"""
import argparse
import os
import pathlib
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[1]
BUILD = BENCH.parents[1] / "build"
if "--small" not in sys.argv:
    os.environ.setdefault("LOCKSTEP_BUILD_DIR", str(BUILD / "gpu-libraries"))
sys.path[:0] = [str(BENCH / "step"), str(BENCH / "checkpoint")]
import checkpoint  # noqa: E402
import step  # noqa: E402
from systems import SGD, Case  # noqa: E402
import torch_python  # noqa: E402

# Of bf16, dense: runtime/telemetry/gpu_peak.cc.
PEAK_FLOPS = {"NVIDIA H100 80GB HBM3": 989.5e12, "NVIDIA H200": 989.5e12}
PUBLISHED = """llm.c, GPT-2 124M in bf16, as published, not measured here: 218,000 tokens/s of each of 8 A100 80GB (524,288 tokens in "~300ms":
  its scripts/run_gpt2_124M.sh); about 460,000 of each of 8 H100 ("10B" tokens in "45 minutes": README of KellerJordan/modded-nanogpt)"""

GRAPH = {"lockstep graph": {"cudaGraph": True}}
ADAMW = {"name": "adamw", "learningRate": 1e-4, "weightDecay": 0.1}
CHECKPOINT_SYSTEMS = ["lockstep", "torch.save", "async_save"]


def gpt(layers, heads, width, length, vocabulary=50304):
    return {"name": "gpt", "gpt": {"layers": layers, "heads": heads, "embeddingSize": width, "contextLength": length,
                                   "vocabularySize": vocabulary}}


def on_gpu(model, batch, **more):
    return Case(model, batch, "cuda", (1,), **more)


GPT2 = on_gpu(gpt(12, 12, 768, 1024), 32, optimizer=ADAMW, precision="bf16")
RESNET50 = on_gpu({"name": "resnet50"}, 256, precision="bf16", samples=1024, shape=(3, 224, 224), classes=1000, workers=4)
TINY = on_gpu({"name": "mlp", "mlp": {"hiddenSizes": [64]}}, 1)
# GPT-2 large with three layers more: 832 million parameters, 12 bytes of each.
LARGE = checkpoint.Size(on_gpu(gpt(39, 20, 1280, 1024), 8, optimizer=ADAMW, precision="bf16"), every=10, saves=1)
CASES = {"gpt2": GPT2, "resnet50": RESNET50, "tiny": TINY}

SMALL_GPT = GPT2._replace(model=gpt(2, 2, 64, 64, 256), batch=4, device="cpu")
SMALL = {"gpt2": SMALL_GPT, "tiny": TINY._replace(device="cpu"),
         "resnet50": RESNET50._replace(shape=(3, 64, 64), classes=10, samples=64, batch=4, device="cpu")}
SMALL_SIZE = checkpoint.Size(SMALL_GPT, every=10, saves=1)


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def gpu():
    """(name, driver) of the first."""
    try:
        return output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()[0].split(", ")
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"there is no GPU here ({error}); --small tries the bench on the CPU") from None


def flops_of_a_token(spec):
    """As runtime/common/api/model_flops.cc counts them; a backward pass takes twice those of the forward pass."""
    width = spec["embeddingSize"]
    layer = 2 * width * (3 * width + width + 8 * width) + 2 * 2 * width * spec["contextLength"]
    return 3 * (spec["layers"] * layer + 2 * width * spec["vocabularySize"])


def meaning(case, steps_per_second, peak):
    rate = steps_per_second * case.batch
    if case.model["name"] == "resnet50":
        return f"  {rate:9.0f} images/s"
    if case.model["name"] == "mlp":
        return f"  {1e6 / steps_per_second:9.1f} us/step"
    tokens = rate * case.model["gpt"]["contextLength"]
    return f"  {tokens:9.0f} tokens/s" + (f"  MFU {tokens * flops_of_a_token(case.model['gpt']) / peak:.1%}" if peak else "")


def run(name, options, bench):
    cases = SMALL if options.small else CASES
    if name == "checkpoint":
        checkpoint.Bench(options, s3_uri=None).compare(name, SMALL_SIZE if options.small else LARGE)
    elif name == "start":
        bench.start(cases["gpt2"])
    else:
        bench.compare(name, cases[name])
    if name == "gpt2":
        print(PUBLISHED, flush=True)


def main():
    parser = argparse.ArgumentParser()
    names = [*CASES, "start", "checkpoint"]
    parser.add_argument("--only", nargs="+", default=names, choices=names)
    parser.add_argument("--against", nargs="*", default=step.VARIANTS, choices=step.VARIANTS)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10, help="of one measurement")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    device, driver = ("CPU", "none") if options.small else gpu()
    options.systems = CHECKPOINT_SYSTEMS
    options.programs = BUILD / ("release/bin" if options.small else "gpu-libraries/bin")
    if not options.small:
        os.environ.setdefault("LOCKSTEP_RANK_PROGRAM", str(BUILD / "gpu-core/bin/lockstep-rank"))
    torch = output_of(torch_python.python_for_benches(), "-c", "import torch; print(torch.__version__)")
    print(f"{device}, driver {driver}, PyTorch {torch}, {os.cpu_count()} processors, load before {os.getloadavg()[0]:.1f}", flush=True)
    bench = step.Bench(options, {"lockstep": {}, **({} if options.small else GRAPH)},
                       lambda case, rate: meaning(case, rate, PEAK_FLOPS.get(device)))
    for name in options.only:
        try:
            run(name, options, bench)
        except SystemExit as failure:
            bench.failed.append(name)
            print(f"{name}: {failure}", flush=True)
    return f"failed: {', '.join(bench.failed)}" if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
