"""Reads what is stored, by `lockstep checkpoint` and past all faults, while somebody writes: the newest complete checkpoint never goes
back, nothing that was complete is lost but to keepLast, and whatever is complete is sound.
"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import threading

from build_folder import BIN
from cases import LIMIT, expect

KEEP_LAST = 2
PAUSE = 0.3
NO_MANIFEST = "no manifest.json"


class Oracle:
    def __init__(self, uri, environment):
        self.uri = uri
        self.environment = {**os.environ, **environment}
        self.problems = []
        self.newest = -1
        self.looks = 0
        self.sound = set()
        self.named = set()  # steps that ever had a manifest
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def until_newer(self, than, run):
        run.until(f"a checkpoint newer than step {than} ({self.problems})", lambda: self.newest > than or self.problems)
        self.judge()

    def judge(self):
        expect(not self.problems, "; ".join(self.problems))

    def finish(self):
        """The last look, when nobody writes: all that is there, again from the first byte."""
        self.done.set()
        self.thread.join()
        self.sound.clear()
        self._look()
        self.judge()
        expect(self.sound, "there is no checkpoint")

    def _work(self):
        while not self.done.wait(PAUSE) and not self.problems:
            self._look()

    def _look(self):
        listed = self._listed()
        if listed is None:
            return
        complete = [step for step, problems in listed.items() if not problems]
        newest = max(complete, default=-1)
        if newest < self.newest:
            self._accuse(self.newest, f"the newest complete checkpoint was of step {self.newest}, now of {newest}: {listed}")
        self.newest = max(newest, self.newest)
        for step, problems in listed.items():
            if problems and NO_MANIFEST not in problems and not self._is_new(step):
                self._accuse(step, f"step {step}: {problems}")
        for step in complete:
            if step == newest or step not in self.sound:
                self._verify(step)
        self.looks += 1

    def _listed(self):
        """{step: what is wrong with it}"""
        tool = self._tool("ls", self.uri, "--json")
        if tool.returncode == 0:
            listed = {entry["step"]: entry["problems"] for entry in json.loads(tool.stdout)}
            self.named |= {step for step, problems in listed.items() if NO_MANIFEST not in problems}
            return listed
        if self.newest >= 0:
            self.problems.append(f"ls ends with {tool.returncode}: {tool.stdout}{tool.stderr}")
        return None

    def _verify(self, step):
        tool = self._tool("verify", self.uri, "--step", str(step))
        if tool.returncode == 0:
            self.sound.add(step)
        else:
            self._accuse(step, f"step {step}: verify ends with {tool.returncode}: {tool.stdout}{tool.stderr}")

    def _is_new(self, step):
        """Whether its manifest came while `ls` read, after its shards, which it did not list: another look finds it complete."""
        return step not in self.sound and not (self._listed() or {}).get(step, [NO_MANIFEST])

    def _accuse(self, step, problem):
        """Unless it is being removed, as it may be when there are newer ones, with a manifest. While `ls` reads, on a busy machine for
        seconds, the next of those goes and another comes that it does not list: those of all listings count, and of two after this."""
        for _ in range(2):
            listed = self._listed() or {}
            newer = [other for other in self.named if other > step]
            if len(newer) >= KEEP_LAST and NO_MANIFEST in listed.get(step, [NO_MANIFEST]):
                return
        self.problems.append(f"{problem}; listed: {listed}")

    def _tool(self, *arguments):
        return subprocess.run([f"{BIN}/lockstep", "checkpoint", *arguments], env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False)


def unnamed(place):
    """The files below that neither a manifest names nor the README."""
    place = pathlib.Path(place)
    named = {place / "history.jsonl"}
    for manifest in place.glob("step-*/manifest.json"):
        named |= {manifest, *(manifest.parent / shard["name"] for shard in json.loads(manifest.read_text())["shards"])}
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file() and path not in named)


def unfinished_uploads(url, key, secret):
    """The ids of the multipart uploads of the bucket that were begun and neither completed nor aborted."""
    listing = subprocess.run(["curl", "-sS", "--fail-with-body", "--noproxy", "*", "--max-time", "30", "--aws-sigv4", "aws:amz:us-east-1:s3",
                              "--user", f"{key}:{secret}", "-H", f"x-amz-content-sha256: {hashlib.sha256().hexdigest()}",
                              f"{url}/bucket?uploads="], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    expect(listing.returncode == 0 and "ListMultipartUploadsResult" in listing.stdout, listing.stdout)
    return set(re.findall(r"<UploadId>([^<]+)</UploadId>", listing.stdout))
