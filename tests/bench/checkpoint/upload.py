#!/usr/bin/env python3
"""Bytes to an S3 server and back: the store of our checkpoints beside boto3's transfer manager, the same server, bytes and turn.

upload.py [--program FILE] [--megabytes N…] [--turns N]    prints medians and ratios; seconds of the client's processors, too

The server (versitygw over a folder) shares processors and disk with both.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import venv

from saving import s3_place  # first: it finds tests/support
import torch_python  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
BOTO3 = "1.40.0"
TICKS = os.sysconf("SC_CLK_TCK")


def boto3_python():
    """Of an environment in the cache, made once."""
    folder = torch_python.cache() / "python" / f"boto3-{BOTO3}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        venv.create(partial, with_pip=True, clear=True)
        subprocess.run([partial / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"boto3=={BOTO3}"], check=True)
        partial.rename(folder)
    return folder / "bin/python"


class Client:
    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[0]} ended with {self.process.wait()}")
        return line.strip()

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def do(self, what):
        before = self.cpu()
        print(what, file=self.process.stdin, flush=True)
        seconds = float(self.answer())
        return seconds, self.cpu() - before

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def compare(uri, megabytes, options):
    size = str(megabytes << 20)
    clients = {"lockstep": Client(options.program, f"{uri}/lockstep", size),
               "boto3": Client(boto3_python(), ROOT / "tests/bench/checkpoint/boto3_peer.py", f"{uri}/boto3", size)}
    try:
        for what in ("put", "get"):
            took = {name: [] for name in clients}
            for _ in range(options.turns):
                for name, client in clients.items():
                    took[name].append(client.do(what))
            medians = {name: [statistics.median(column) for column in zip(*times)] for name, times in took.items()}
            for name, times in took.items():
                seconds = [each for each, _ in times]
                print(f"{megabytes} MiB {what} {name}: {medians[name][0]:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
                      f"{megabytes / medians[name][0]:.0f} MiB/s, {medians[name][1]:.2f} s of processors")
            print(f"{megabytes} MiB {what}: {medians['boto3'][0] / medians['lockstep'][0]:.2f} times boto3's speed", flush=True)
    finally:
        for client in clients.values():
            client.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build/release/tests/bench/upload_bench")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    print(f"{os.cpu_count()} processors, load before {os.getloadavg()[0]:.1f}", flush=True)
    with s3_place(True) as uri:
        for megabytes in options.megabytes:
            compare(uri, megabytes, options)


if __name__ == "__main__":
    sys.exit(main())
