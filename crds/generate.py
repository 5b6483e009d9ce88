#!/usr/bin/env python3
"""Writes crds/distributedtrainingjobs.yaml, its copy in the chart, and docs/reference/fields.md from crds/schema.yaml and Kubernetes' own OpenAPI.

schema.yaml is ours, written by hand. Where it says `generated:`, the named definition of the API server's OpenAPI v3
takes its place, made structural as a custom resource needs it: references put in place, descriptions left out (the
definition must stay below 262,144 bytes for a plain `kubectl apply`), annotations of lists and maps kept.

    crds/generate.py                 asks the cluster of KUBECONFIG (kubectl), writes the file
    crds/generate.py --openapi DIR   reads api-v1.json and apis-autoscaling-v2.json from DIR instead
    crds/generate.py --reuse         takes the generated parts from the file as it is: enough after an edit of schema.yaml
    crds/generate.py --check …       writes nothing; exit status 1 if the file would change

Needs Python 3 and PyYAML (Debian python3-yaml).
"""

import argparse
import copy
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys

import yaml

FOLDER = pathlib.Path(__file__).resolve().parent
SCHEMA = FOLDER / "schema.yaml"
TARGET = FOLDER / "distributedtrainingjobs.yaml"
# A chart cannot reach outside its folder.
CHART_COPY = FOLDER.parent / "charts" / "lockstep" / "files" / TARGET.name
FIELDS = FOLDER.parent / "docs" / "reference" / "fields.md"
MAX_BYTES = 262144  # limit of the annotation that `kubectl apply` keeps the object in
HEADER = """\
# Made by crds/generate.py from crds/schema.yaml and the OpenAPI of Kubernetes {version}; do not edit.
# The schemas of the pod template and of the autoscaler's metrics have no descriptions, to keep this file small enough
# for a plain `kubectl apply`.
"""

PREFIX = "#/components/schemas/"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
KEPT = {
    "type", "format", "enum", "required", "nullable", "pattern", "minimum", "maximum", "maxLength", "minLength",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
}
# The metadata that a pod template may set; the operator sets the rest. Tools write the null time.
TEMPLATE_META = {
    "type": "object",
    "properties": {
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "creationTimestamp": {"type": "string", "format": "date-time", "nullable": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


class Inliner:
    """Turns definitions of one OpenAPI document into structural schemas."""

    def __init__(self, document):
        self.definitions = document["components"]["schemas"]

    def definition(self, name, open_names=()):
        if name == OBJECT_META:
            return copy.deepcopy(TEMPLATE_META)
        if name == QUANTITY:
            return {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": QUANTITY_PATTERN,
                "x-kubernetes-int-or-string": True,
            }
        if name == INT_OR_STRING:
            return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
        if name in open_names:
            raise SystemExit(f"{name} contains itself: not expressible in a custom resource")
        return self.schema(self.definitions[name], open_names + (name,))

    def schema(self, node, open_names):
        if "$ref" in node:
            return self.definition(node["$ref"].removeprefix(PREFIX), open_names)
        if "allOf" in node:  # how OpenAPI v3 puts a description beside a reference
            (reference,) = node["allOf"]
            return self.schema(reference, open_names)
        result = {key: copy.deepcopy(value) for key, value in node.items() if key in KEPT}
        if result.get("x-kubernetes-list-type") == "atomic":  # the default
            del result["x-kubernetes-list-type"]
        if "properties" in node:
            result["properties"] = {
                key: self.schema(value, open_names) for key, value in sorted(node["properties"].items())
            }
        if "items" in node:
            result["items"] = self.schema(node["items"], open_names)
            self.complete_map_keys(result, node["items"])
        if isinstance(node.get("additionalProperties"), dict):
            result["additionalProperties"] = self.schema(node["additionalProperties"], open_names)
        if "type" not in result:
            raise SystemExit(f"no type: {json.dumps(node)[:200]}")
        return result

    def complete_map_keys(self, result, items):
        """A key of a list map must be required or have a default; the API server handles the other defaults."""
        if result.get("x-kubernetes-list-type") != "map":
            return
        target = items["allOf"][0] if "allOf" in items else items
        original = self.definitions[target["$ref"].removeprefix(PREFIX)] if "$ref" in target else target
        for key in result["x-kubernetes-list-map-keys"]:
            if key not in result["items"].get("required", []):
                result["items"]["properties"][key]["default"] = original["properties"][key].get("default", "")


def merge(base, overlay):
    """Mappings are merged; everything else is replaced."""
    for key, value in overlay.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = value


def remove(schema, path):
    *parents, last = path.split(".")
    for key in parents:
        schema = schema["properties"][key]
    del schema["properties"][last]


def generated(node, documents):
    """The node with the definition that its `generated` names in it; own fields of the node win."""
    order = node.pop("generated")
    result = Inliner(documents(order["document"])).definition(order["definition"])
    for path in order.get("remove", []):
        remove(result, path)
    merge(result, order.get("overlay", {}))
    return {**result, **node}


def fill(node, documents, reused):
    """Walks schema and, where given, the present file beside it."""
    if isinstance(node, list):
        return [fill(entry, documents, beside(reused, index)) for index, entry in enumerate(node)]
    if not isinstance(node, dict):
        return node
    if "generated" in node and "definition" in node["generated"]:
        if reused is not None:
            own = {key: value for key, value in node.items() if key != "generated"}
            return {**reused, **own}
        return generated(dict(node), documents)
    return {key: fill(value, documents, beside(reused, key)) for key, value in node.items()}


def beside(reused, key):
    if reused is None:
        return None
    try:
        return reused[key]
    except (KeyError, IndexError):
        return None


class Dumper(yaml.SafeDumper):
    """Block style down to our fields, one line for each field of Kubernetes' own schemas."""

    def ignore_aliases(self, data):
        return True


class Inline(dict):
    pass


Dumper.add_representer(
    Inline, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=True)
)


def mark_inline(node, path=()):
    """Scalars' schemas go on one line; so does everything below one field of a pod or of its containers."""
    if isinstance(node, list):
        return [mark_inline(entry, path) for entry in node]
    if not isinstance(node, dict):
        return node
    is_field = len(path) > 1 and path[-2] == "properties"
    is_leaf = is_field and "properties" not in json.dumps(node) and "x-kubernetes-validations" not in node
    if is_leaf or (is_field and "template" in path[:-2] and path[-1] not in ("spec", "containers", "metadata")):
        return Inline(node)
    return {key: mark_inline(value, path + (key,)) for key, value in node.items()}


def render(crd, version):
    text = yaml.dump(mark_inline(crd), Dumper=Dumper, sort_keys=False, width=1 << 20, allow_unicode=True)
    return HEADER.format(version=version) + text


def minor_version(text):
    """1.34 of "1.34" or "v1.34.4", or of the header of the present file."""
    found = re.search(r"(?:^v?|Kubernetes )(\d+\.\d+)", text)
    return found.group(1) if found else "of unknown version"


def documents_from_folder(folder):
    def read(name):
        return json.loads((pathlib.Path(folder) / (name.replace("/", "-") + ".json")).read_text())

    return read


def documents_from_cluster(kubectl):
    def read(name):
        command = [kubectl, "get", "--raw", "/openapi/v3/" + name]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60).stdout)

    return read


FIELDS_HEADER = """\
<!-- Made by crds/generate.py from crds/schema.yaml; do not edit. -->
# Fields of a DistributedTrainingJob

API version `lockstep.dev/v1alpha1`. `kubectl explain dtj.spec` shows the same in a terminal. A field in **bold** is required if the object that contains
it is present. The rules between fields are below each table.

| section | what it is about | without it |
|---|---|---|
| `managedBy`, `suspend` | which installation runs the job; whether it is suspended | the default installation; not suspended |
| `worker`, `nprocPerNode`, `standbyReplicas` | the pods and the processes in each | one pod; one process for each GPU, else one |
| `elasticPolicy` | the numbers of pods with which the job may train | the number is fixed |
| `training` | model, data, optimizer, schedule, batch, end, evaluation | the command of the trainer container runs: a program of your own |
| `checkpoint` | where and when to save, where to start | nothing is saved |
| `rendezvous` | time-outs of rounds and heartbeats | the defaults below |
| `failurePolicy` | how many restarts, and rules for particular failures | 3 restarts, in place first |
| `healthPolicy` | hangs, slow ranks, nodes that fail | hangs are detected; pods of nodes that do not answer are replaced |
| `runPolicy`, `successPolicy` | deadlines; what remains of a finished job; when it is complete | no deadline; running pods are deleted; all ranks must succeed |
| `schedulingPolicy` | gang, queue, priority, topology | as the scheduler decides |
| `network`, `observability` | network of the pods; metrics and logs | the cluster's network; port 9400; rank 0 logs its progress |

The operator uses the whole pod template in `worker.template` and adds names, labels, environment variables, volumes for its configuration, and
`restartPolicy: Never`.
"""


def type_of(schema):
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "generated" in schema:
        return "Kubernetes' " + schema["generated"]["definition"].rpartition(".")[2]
    if schema.get("type") == "array":
        return "list of " + type_of(schema["items"])
    return schema.get("format") if schema.get("format") == "date-time" else schema["type"]


def limits_of(schema):
    parts = []
    if "enum" in schema:
        parts.append(", ".join(f"`{word}`" for word in schema["enum"]))
    for least, most, unit in (("minimum", "maximum", ""), ("minLength", "maxLength", " characters"), ("minItems", "maxItems", " entries")):
        if least == "minLength" and schema.get("x-kubernetes-int-or-string"):
            continue  # the rule says more
        low, high = schema.get(least), schema.get(most)
        below = "above " if least == "minimum" and schema.get("exclusiveMinimum") else ""
        if low is not None and high is not None:
            parts.append(f"{below}{low} to {high}{unit}")
        elif low is not None or high is not None:
            parts.append((f"{below or 'at least '}{low}" if high is None else f"at most {high}") + unit)
    if schema.get("type") == "array" and limits_of(schema["items"]):
        parts.append("each: " + limits_of(schema["items"]))
    return "; ".join(parts)


def field_rows(schema, path, is_required):
    """A row for the field, then those below it, and the messages of all their rules."""
    default = "" if "default" not in schema else f"default `{json.dumps(schema['default']).strip(chr(34))}`"
    name = f"**`{path}`**" if is_required else f"`{path}`"
    kind = "; ".join(part for part in (type_of(schema), limits_of(schema), default) if part)
    cells = (name, kind, schema.get("description", ""))
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"]
    rules = [f"- `{path}`: {rule['message']}" for rule in schema.get("x-kubernetes-validations", []) if "message" in rule]
    below, at = (schema["items"], path + "[]") if schema.get("type") == "array" else (schema, path)
    if below is not schema:
        rules += [f"- `{at}`: {rule['message']}" for rule in below.get("x-kubernetes-validations", []) if "message" in rule]
    for key, child in below.get("properties", {}).items():
        more_rows, more_rules = field_rows(child, f"{at}.{key}", key in below.get("required", []))
        rows, rules = rows + more_rows, rules + more_rules
    return rows, rules


def field_reference(crd):
    """docs/reference/fields.md: a section for each part of the spec, and one for the status."""
    (version,) = crd["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    spec = properties["spec"]
    sections = {"spec": []}  # with what has no fields below it
    for key, child in spec["properties"].items():
        path = "spec." + key
        sections.setdefault(path if "properties" in child else "spec", []).append((child, path, key in spec["required"]))
    sections["status"] = [(properties["status"], "status", False)]
    text = FIELDS_HEADER
    table = "\n| field | type, limits, default | meaning |\n|---|---|---|\n"
    for path, fields in sections.items():
        rows, rules = [], []
        for field in fields:
            more_rows, more_rules = field_rows(*field)
            rows, rules = rows + more_rows, rules + more_rules
        text += f"\n## {path}\n" + table + "\n".join(rows) + "\n"
        if rules:
            text += "\n" + "\n".join(rules) + "\n"
    between = [rule["message"] for rule in spec["x-kubernetes-validations"] if "message" in rule]
    return text + "\n## Rules between sections\n\n" + "\n".join(f"- {message}" for message in between) + "\n"


def check(path, text):
    committed = path.read_text() if path.exists() else ""
    if committed == text:
        return 0
    difference = list(difflib.unified_diff(committed.splitlines(), text.splitlines(), "committed", "regenerated", n=0))
    print("\n".join(line[:200] for line in difference[:40]))
    print(f"{path.relative_to(FOLDER.parent)} differs from what crds/generate.py makes")
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--reuse", action="store_true", help="keep the generated parts of the present file")
    parser.add_argument("--openapi", metavar="DIR", help="folder with api-v1.json and apis-autoscaling-v2.json")
    parser.add_argument("--kubectl", default=os.environ.get("KUBECTL", "kubectl"))
    arguments = parser.parse_args()

    present = TARGET.read_text() if TARGET.exists() else ""
    reused = yaml.safe_load(present) if arguments.reuse else None
    documents = (
        documents_from_folder(arguments.openapi) if arguments.openapi else documents_from_cluster(arguments.kubectl)
    )
    version = minor_version(present if reused else documents("api/v1")["info"]["version"])
    schema = yaml.safe_load(SCHEMA.read_text())
    fields = field_reference(schema)
    text = render(fill(schema, documents, reused), version)
    if len(text.encode()) >= MAX_BYTES:
        raise SystemExit(f"{TARGET.name} would have {len(text.encode())} bytes; `kubectl apply` takes {MAX_BYTES}")
    if arguments.check:
        return max(check(TARGET, text), check(CHART_COPY, text), check(FIELDS, fields))
    for path in (TARGET, CHART_COPY):
        path.write_text(text)
    FIELDS.write_text(fields)
    print(f"{TARGET.name}: {len(text.encode())} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
