"""The manifest of a job that runs a script. Field names are those of crds/schema.yaml."""
from __future__ import annotations

import copy
import dataclasses
import importlib
import json
import pathlib
import typing

from lockstep.errors import LockstepError

Object = typing.Dict[str, typing.Any]

GROUP, VERSION, PLURAL, KIND = "lockstep.dev", "v1alpha1", "distributedtrainingjobs", "DistributedTrainingJob"
CONTAINER = "trainer"  # default of spec.worker.containerName
SCRIPT_FOLDER, PACKAGES_FOLDER = "/opt/lockstep-script", "/opt/lockstep-packages"


@dataclasses.dataclass(frozen=True)
class Options:
    """As `Client.submit` takes them."""

    image: str | None = None
    replicas: int = 1
    nproc_per_node: int | str = "auto"
    resources: typing.Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    packages: typing.Sequence[str] = ()
    env: typing.Mapping[str, str] = dataclasses.field(default_factory=dict)
    container: typing.Mapping[str, typing.Any] = dataclasses.field(default_factory=dict)
    spec: typing.Mapping[str, typing.Any] = dataclasses.field(default_factory=dict)


def manifest_of(name: str, command: typing.Sequence[str], options: Options) -> Object:
    container: Object = {"name": CONTAINER, "image": options.image, "command": list(command)}
    if options.env:
        container["env"] = [{"name": key, "value": str(value)} for key, value in options.env.items()]
    if options.resources:
        container["resources"] = {"limits": dict(options.resources)}
    container = _merged(container, options.container)
    worker = {"replicas": options.replicas, "template": {"spec": {"containers": [container]}}}
    spec = _merged({"nprocPerNode": options.nproc_per_node, "worker": worker}, options.spec)
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": {"name": name}, "spec": spec}


def mount_script(manifest: Object, config_map: str) -> None:
    pod, container = _pod_and_trainer(manifest)
    pod.setdefault("volumes", []).append({"name": "lockstep-script", "configMap": {"name": config_map}})
    container.setdefault("volumeMounts", []).append({"name": "lockstep-script", "mountPath": SCRIPT_FOLDER, "readOnly": True})


def install_packages(manifest: Object, packages: typing.Sequence[str]) -> None:
    """By an init container, so once in each pod and not by each rank. `pip install --user` keeps what the image has, such as its PyTorch."""
    pod, container = _pod_and_trainer(manifest)
    mount = {"name": "lockstep-packages", "mountPath": PACKAGES_FOLDER}
    base = {"name": "PYTHONUSERBASE", "value": PACKAGES_FOLDER}
    pod.setdefault("volumes", []).append({"name": "lockstep-packages", "emptyDir": {}})
    init: Object = {field: container[field] for field in ("image", "imagePullPolicy", "envFrom", "securityContext") if field in container}
    quiet = [{"name": "PIP_BREAK_SYSTEM_PACKAGES", "value": "1"}, {"name": "PIP_DISABLE_PIP_VERSION_CHECK", "value": "1"}]
    init.update(name="packages", env=[*container.get("env", []), base, *quiet], volumeMounts=[*container.get("volumeMounts", []), mount],
                command=["python3", "-m", "pip", "install", "--user", "--no-cache-dir", "--no-warn-script-location", *packages])
    pod.setdefault("initContainers", []).append(init)
    container["env"] = [*container.get("env", []), base]
    container.setdefault("volumeMounts", []).append(mount)


def read_manifest(given: str | pathlib.Path | typing.Mapping[str, typing.Any]) -> Object:
    """A dict, or a file with one job in YAML or JSON."""
    if isinstance(given, typing.Mapping):
        found: typing.Any = copy.deepcopy(dict(given))
    else:
        try:
            found = _parse(pathlib.Path(given))
        except OSError as error:
            raise LockstepError(f"the manifest cannot be read: {error}") from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise LockstepError(f"{'the dict' if isinstance(given, typing.Mapping) else given} is not a {KIND}")
    if not isinstance(found.get("metadata"), dict) or not isinstance(found["metadata"].get("name"), str):
        raise LockstepError("the manifest has no metadata.name")
    return found


def _parse(path: pathlib.Path) -> typing.Any:
    text = path.read_text()
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise LockstepError(f"{path} is not JSON: {error}") from None
    try:
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError:
        raise LockstepError("PyYAML is not installed, so only JSON can be read: pip install pyyaml") from None
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise LockstepError(f"{path} is not YAML: {error}") from None
    if len(documents) != 1:
        raise LockstepError(f"{path} has {len(documents)} documents: submit_manifest takes one job; `kubectl lockstep submit` takes several")
    return documents[0]


def _pod_and_trainer(manifest: Object) -> tuple[Object, Object]:
    pod = manifest["spec"]["worker"]["template"]["spec"]
    return pod, pod["containers"][0]


def _merged(ours: typing.Any, theirs: typing.Any) -> typing.Any:
    """Objects are merged, lists are joined, and of two other values that of the user counts."""
    if isinstance(ours, dict) and isinstance(theirs, typing.Mapping):
        return {**ours, **{key: _merged(ours[key], value) if key in ours else copy.deepcopy(value) for key, value in theirs.items()}}
    if isinstance(ours, list) and isinstance(theirs, list):
        return [*ours, *copy.deepcopy(theirs)]
    return copy.deepcopy(theirs)
