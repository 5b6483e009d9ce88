"""What the witness costs a program: the same script with and without it, in turns.

witness.py [--runs N] [--steps N]

A small step on one thread, 1 to 5 ms. Prints the median step of both, and their ratio; aim: at most 1.01.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
import torch_python  # noqa: E402

PROGRAM = """
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters())
steps = int(sys.argv[1])
loader = DataLoader(TensorDataset(torch.rand(64 * steps, 784), torch.randint(0, 10, (64 * steps,))), batch_size=64)
times = []
before = time.perf_counter()
for inputs, targets in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    now = time.perf_counter()
    times.append(now - before)
    before = now
print(sorted(times)[len(times) // 2])
"""


def page():
    """A page as runtime/witness/page.cc makes it, in a file of memory."""
    file = os.memfd_create("page", 0)
    os.write(file, (0x31305353454E5457).to_bytes(8, "little") + bytes(16) + (-1).to_bytes(8, "little", signed=True) + bytes(4064))
    return file


def step_seconds(steps, with_witness):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    file = page()
    if with_witness:
        environment.update(PYTHONPATH=str(ROOT / "runtime/witness/python"), LOCKSTEP_WITNESS_PAGE=f"/proc/{os.getpid()}/fd/{file}")
    out = subprocess.run([torch_python.python(), "-c", PROGRAM, str(steps)], env=environment, check=True, capture_output=True, text=True).stdout
    seen = int.from_bytes(os.pread(file, 8, 16), "little")
    os.close(file)
    if seen != (steps if with_witness else 0):
        sys.exit(f"the witness saw {seen} steps of {steps}")
    return float(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    pairs = [(step_seconds(arguments.steps, True), step_seconds(arguments.steps, False)) for _ in range(arguments.runs)]
    seen, alone = (statistics.median(times) for times in zip(*pairs))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"step with the witness {seen * 1e3:.3f} ms, without {alone * 1e3:.3f} ms; ratio {ratio:.4f} (median of {arguments.runs} pairs)")


if __name__ == "__main__":
    main()
