"""Custom resources of other projects: their own definitions from $LOCKSTEP_EXTERNAL_CRDS, or ../shared/external-crds, where that folder
is there; else ours, which know no more than the names."""
import os
import pathlib
import subprocess

import yaml
from cases import until
from operators import ROOT

EXTERNAL = pathlib.Path(os.environ.get("LOCKSTEP_EXTERNAL_CRDS") or ROOT.parent / "shared/external-crds")
NAMESPACED, CLUSTER = "Namespaced", "Cluster"


def definition(group, version, plural, kind, scope=NAMESPACED):
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test's own"}},
            "spec": {"group": group, "scope": scope, "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
                     "versions": [{"name": version, "served": True, "storage": True, "subresources": {"status": {}},
                                   "schema": {"openAPIV3Schema": anything}}]}}


def install(api, files, own):
    """`files` of the folder, else the definitions `own`; until all of these are served."""
    if EXTERNAL.is_dir():
        print("their own definitions of", ", ".join(files))
        text = "\n---\n".join((EXTERNAL / f"{name}.yaml").read_text() for name in files)
    else:
        print("our definitions of", ", ".join(entry["metadata"]["name"] for entry in own))
        text = yaml.safe_dump_all(own)
    subprocess.run(["kubectl", "apply", "--server-side", "--filename=-"], input=text, check=True, text=True, stdout=subprocess.DEVNULL)
    paths = [f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}" for spec in (entry["spec"] for entry in own)]
    until("the definitions are served", lambda: all(api.request("GET", path)[0] == 200 for path in paths))
