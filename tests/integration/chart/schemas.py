"""Schemas for kubeconform, in which an unknown field is an error: those of Kubernetes from the wheel kubernetes-validate (.ci/install),
those of definitions (ours, the Prometheus operator's, cert-manager's) from their own YAML.
"""
import json
import pathlib
import subprocess

import yaml

from rendering import LOADER, ROOT


def printed(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


WHEEL = pathlib.Path(printed(ROOT / ".ci/install", "--print-test-site"), "kubernetes_validate/kubernetes-json-schema")
OTHERS = pathlib.Path(printed(ROOT / "tests/integration/chart/tools/build.sh", "--print-definitions"))
OURS = ROOT / "crds/distributedtrainingjobs.yaml"


def present():
    return WHEEL.is_dir() and OTHERS.is_dir()


def name(kind, group, version):
    """As kubeconform looks for it: the group's first word, nothing for the core's."""
    return "-".join(word.lower() for word in (kind, group.split(".")[0], version) if word) + ".json"


def closed(schema):
    """A field's schema of a definition, in JSON Schema."""
    schema = dict(schema)
    if schema.get("x-kubernetes-int-or-string"):
        schema["type"] = ["integer", "string"]
    if "properties" in schema:
        schema["properties"] = {field: closed(inner) for field, inner in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema["additionalProperties"] = False
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            schema[inner] = closed(schema[inner])
    if schema.get("nullable"):
        schema["type"] = [schema["type"], "null"]
    return schema


def write_definitions(folder):
    for path in (OURS, *OTHERS.glob("*.yaml")):
        spec = yaml.load(path.read_text(), LOADER)["spec"]
        for version in spec["versions"]:
            file = folder / name(spec["names"]["kind"], spec["group"], version["name"])
            file.write_text(json.dumps(closed(version["schema"]["openAPIV3Schema"])))


def write_kubernetes(version, folder):
    """One file for each kind, which names its part of _definitions.json."""
    everything = json.loads((WHEEL / f"v{version}-local-strict" / "_definitions.json").read_text())["$defs"]
    (folder / "_definitions.json").write_text(json.dumps({"$defs": everything}))
    for definition, schema in everything.items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            (folder / name(kind["kind"], kind["group"], kind["version"])).write_text(json.dumps({"$ref": f"_definitions.json#/$defs/{definition}"}))
