"""Jobs of a cluster. The script of a job is a ConfigMap that the job owns, so it goes with the job."""
from __future__ import annotations

import contextlib
import datetime
import math
import secrets
import time
import typing

from lockstep.client import manifest as manifests
from lockstep.client.backend import Changes, Say
from lockstep.client.kube import Expired, Kube, Refused, Unreachable
from lockstep.client.manifest import Object, Options
from lockstep.client.program import Program
from lockstep.client.pod_logs import PodLogs
from lockstep.client.progress import is_finished
from lockstep.errors import LockstepError

_SAVE = "lockstep.dev/save"  # as in runtime/common/api/names.h
_WATCH_SECONDS = 300.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class Cluster:
    def __init__(self, kube: Kube) -> None:
        self._kube, self._logs = kube, PodLogs(kube)

    def submit(self, name: str, program: Program, options: Options) -> None:
        if options.image is None:
            raise LockstepError("image is required in a cluster: one with Python and PyTorch")
        config_map = f"{name}-script-{secrets.token_hex(4)}"  # that of an earlier job of this name may still be there
        manifest = manifests.manifest_of(name, ["python3", f"{manifests.SCRIPT_FOLDER}/{program.file}", *program.arguments], options)
        manifests.mount_script(manifest, config_map)
        if options.packages:
            manifests.install_packages(manifest, options.packages)
        # Before the job, because a pod that comes before it waits for a minute or more.
        self._kube.create_config_map({"metadata": {"name": config_map}, "immutable": True, "data": {program.file: program.text}})
        try:
            job = self._create(manifest)
            owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": name, "uid": job["metadata"]["uid"]}
            self._kube.patch_config_map(config_map, {"metadata": {"ownerReferences": [owner]}})
        except LockstepError:
            with contextlib.suppress(LockstepError):
                self._kube.delete_config_map(config_map)
            raise

    def submit_manifest(self, manifest: Object) -> None:
        namespace = manifest["metadata"].setdefault("namespace", self._kube.namespace)
        if namespace != self._kube.namespace:
            raise LockstepError(f"metadata.namespace is {namespace}, but this client is for {self._kube.namespace}: lockstep.Client(namespace={namespace!r})")
        self._create(manifest)

    def _create(self, manifest: Object) -> Object:
        try:
            return self._kube.create_job(manifest)
        except Refused as error:
            if error.status == 409:
                raise LockstepError(f"there is a job {manifest['metadata']['name']} already: choose another name, or delete it first") from None
            raise

    def get(self, name: str) -> Object:
        try:
            return self._kube.get_job(name)
        except Refused as error:
            if error.status == 404 and name in str(error):
                raise LockstepError(f"there is no job {name} in namespace {self._kube.namespace}") from None
            raise

    def names(self) -> list[str]:
        return [job["metadata"]["name"] for job in self._kube.list_jobs()]

    def changes(self, name: str, deadline: float, say: Say = print) -> Changes:
        version, uid, pause = "", "", 0.0
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{name} has not ended in time; it continues")
            try:
                if not version:
                    job = self.get(name)
                    version, uid = job["metadata"]["resourceVersion"], uid or job["metadata"]["uid"]
                    _expect_same(name, job, uid)
                    yield job
                for kind, job in self._kube.watch_job(name, version, min(left, _WATCH_SECONDS)):
                    if kind == "DELETED":
                        raise LockstepError(f"{name} was deleted")
                    version, pause = job["metadata"]["resourceVersion"], 0.0
                    yield job
            except Expired:
                version = ""
            except Unreachable as error:
                if not uid:
                    raise
                if not pause:
                    say(f"{error}; waiting for it")
                version, pause = "", min(_LONGEST_PAUSE, pause * 2 or _FIRST_PAUSE)
                time.sleep(max(0.0, min(pause, deadline - time.monotonic())))

    def logs(self, name: str, rank: int, follow: bool) -> typing.Iterator[str]:
        return self._logs.follow(self.changes(name, math.inf), rank) if follow else self._logs.read(self.get(name), rank)

    def set_suspend(self, name: str, suspend: bool) -> None:
        _expect_unfinished(name, self.get(name))
        self._kube.patch_job(name, {"spec": {"suspend": suspend}})

    def request_checkpoint(self, name: str) -> None:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._kube.patch_job(name, {"metadata": {"annotations": {_SAVE: f"{now} {secrets.token_hex(4)}"}}})

    def delete(self, name: str) -> None:
        self.get(name)
        self._kube.delete_job(name)


def _expect_same(name: str, job: Object, uid: str) -> None:
    if job["metadata"]["uid"] != uid:
        raise LockstepError(f"{name} was deleted; there is another job of this name")


def _expect_unfinished(name: str, job: Object) -> None:
    if is_finished(job.get("status", {})):
        raise LockstepError(f"{name} has ended ({job['status'].get('state')}): none of its pods runs")
