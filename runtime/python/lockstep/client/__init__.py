"""Submits jobs from a notebook or a script, to a cluster or to this machine, and follows them.

    client = lockstep.Client(namespace="research")
    job = client.submit(train, arguments={"lr": 0.1}, image="registry.example/team/torch:1", replicas=4, nproc_per_node=8)
    job.wait()
"""
from __future__ import annotations

import pathlib
import typing

from lockstep.client.backend import Backend
from lockstep.client.cluster import Cluster
from lockstep.client.kube import Kube
from lockstep.client.local import Local
from lockstep.client.manifest import Options, read_manifest
from lockstep.client.program import Arguments, Function, Path, job_name, program_of
from lockstep.client.training_job import TrainingJob

__all__ = ["Client", "TrainingJob"]


class Client:
    """Jobs of one namespace. Finds the cluster as kubectl does; in a pod without kubeconfig, by its service account.

    Examples:
        >>> client = lockstep.Client(namespace="research")
        >>> client.jobs()
        [TrainingJob('gpt2')]
    """

    def __init__(self, namespace: str | None = None, *, context: str | None = None, kubeconfig: str | None = None) -> None:
        self._backend: Backend = Cluster(Kube(namespace, context, kubeconfig))

    @classmethod
    def local(cls, folder: Path = "run") -> Client:
        """Jobs on this machine, by `lockstep run`; each has a folder below this one. They end with this process.

        Examples:
            >>> lockstep.Client.local().submit("train.py", replicas=2).wait()
        """
        client = cls.__new__(cls)
        client._backend = Local(pathlib.Path(folder))
        return client

    def submit(self, program: Function | Path, *, arguments: Arguments = None, name: str | None = None, image: str | None = None, replicas: int = 1,
               nproc_per_node: int | str = "auto", resources: typing.Mapping[str, int | str] | None = None, packages: typing.Sequence[str] = (),
               env: typing.Mapping[str, str] | None = None, container: typing.Mapping[str, typing.Any] | None = None,
               spec: typing.Mapping[str, typing.Any] | None = None) -> TrainingJob:
        """Runs a function or a script on `replicas` pods, with `nproc_per_node` ranks in each.

        `program`: a function, which is sent as source with the functions, classes, values and imports that it uses; or the path of a script.
        `arguments`: a dict for a function, a list for a script. `image`: has Python and PyTorch, nothing of Lockstep. `resources`: limits of the
        container, such as {"nvidia.com/gpu": 8}. `packages`: installed in each pod before the start. `container`, `spec`: further fields of the
        trainer container and of the job's spec. This machine uses its own Python; image, packages and what else belongs to a container do not apply.

        Examples:
            >>> job = client.submit(train, arguments={"lr": 0.1}, image="registry.example/team/torch:1", replicas=4, resources={"nvidia.com/gpu": 8})
            >>> job = client.submit("train.py", arguments=["--epochs", "3"], image="registry.example/team/torch:1", replicas=4)
        """
        made = program_of(program, arguments)
        options = Options(image, replicas, nproc_per_node, resources or {}, packages, env or {}, container or {}, spec or {})
        job = TrainingJob(job_name(made, name), self._backend)
        self._backend.submit(job.name, made, options)
        return job

    def submit_manifest(self, manifest: Path | typing.Mapping[str, typing.Any]) -> TrainingJob:
        """A DistributedTrainingJob, as a dict or as the path of a file in YAML or JSON.

        Examples:
            >>> job = client.submit_manifest("crds/examples/fashion-mnist.yaml")
        """
        given = read_manifest(manifest if isinstance(manifest, typing.Mapping) else pathlib.Path(manifest))
        self._backend.submit_manifest(given)
        return TrainingJob(given["metadata"]["name"], self._backend)

    def job(self, name: str) -> TrainingJob:
        """One that was submitted before, by whatever client.

        Examples:
            >>> client.job("gpt2").metrics()["step"]
            1200
        """
        self._backend.get(name)
        return TrainingJob(name, self._backend)

    def jobs(self) -> list[TrainingJob]:
        """Those of the namespace, or of the folder.

        Examples:
            >>> [job.name for job in client.jobs()]
            ['gpt2', 'resnet']
        """
        return [TrainingJob(name, self._backend) for name in self._backend.names()]
