"""Operators with the rights that the chart gives them and no others; what they asked for, as the API server's audit log has it."""
import atexit
import base64
import collections
import functools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import yaml

from cases import until
from kube_api import KUBECTL, api

CHART = pathlib.Path(__file__).resolve().parents[2] / "charts/lockstep"
TEMPLATES = ("serviceaccount", "rbac-release", "rbac-jobs")
RBAC = "rbac.authorization.k8s.io"
PATHS = {"ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts", "Role": f"/apis/{RBAC}/v1/namespaces/{{}}/roles",
         "RoleBinding": f"/apis/{RBAC}/v1/namespaces/{{}}/rolebindings", "ClusterRole": f"/apis/{RBAC}/v1/clusterroles",
         "ClusterRoleBinding": f"/apis/{RBAC}/v1/clusterrolebindings"}
EVERYWHERE = "*"
TOKEN_SECONDS = 86400  # longer than a suite takes on any machine: nobody renews it
FORBIDDEN = "forbid"  # what the log says of a request for which a right was missing
# An operator for one namespace looks whether it may read these, and does without: nodes belong to the cluster, as do the flavors without which
# Workloads are of no use.
MAY_BE_REFUSED = {("list", "nodes"), ("list", "workloads.kueue.x-k8s.io")}


class Right(collections.namedtuple("Right", "scope verb resource names")):
    """`scope` is a namespace or EVERYWHERE; `resource` as kubectl writes it, "workloads.kueue.x-k8s.io/status"; `names` of objects, () for all."""

    def permits(self, request):
        return (self.scope in (EVERYWHERE, request.namespace) and (self.verb, self.resource) == (request.verb, request.resource)
                and (not self.names or request.name in self.names))

    def __str__(self):
        place = "in all namespaces" if self.scope == EVERYWHERE else f"in {self.scope}"
        return " ".join([self.verb, self.resource, *self.names, place])


class Request(collections.namedtuple("Request", "user verb resource namespace name is_refused")):
    def __str__(self):
        return " ".join(filter(None, [self.user, "may not" if self.is_refused else "may", self.verb, self.resource, self.name,
                                      f"in {self.namespace}" if self.namespace else "in the cluster"]))


def resource_text(group, resource):
    plural, slash, subresource = resource.partition("/")
    return plural + (f".{group}" if group else "") + slash + subresource


class Release(collections.namedtuple("Release", "namespace name values")):
    """`values` as `helm --set` takes them. Its objects have its name, as has its account."""

    @property
    def user(self):
        return f"system:serviceaccount:{self.namespace}:{self.name}"


@functools.cache
def chart_objects(release):
    """The account, its roles and bindings."""
    command = ["helm", "template", release.name, CHART, "--kube-version=1.34", f"--namespace={release.namespace}",
               *(f"--show-only=templates/{name}.yaml" for name in TEMPLATES),
               *(f"--set={value}" for value in (f"fullnameOverride={release.name}", *release.values))]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [document for document in yaml.safe_load_all(text) if document]


def bindings(documents):
    return [document for document in documents if document["kind"].endswith("RoleBinding")]


def rights_of(documents, binding):
    namespace = binding["metadata"].get("namespace")
    named = binding["roleRef"]["kind"], binding["roleRef"]["name"], namespace
    role, = (document for document in documents
             if (document["kind"], document["metadata"]["name"], document["metadata"].get("namespace")) == named)
    return {Right(namespace or EVERYWHERE, verb, resource_text(group, resource), tuple(rule.get("resourceNames", [])))
            for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}


def all_of(documents):
    return set().union(*(rights_of(documents, binding) for binding in bindings(documents)))


def granted(release):
    return all_of(chart_objects(release))


def create(document):
    path = PATHS[document["kind"]].format(document["metadata"].get("namespace"))
    status, answer = api().request("POST", path, document)
    assert status == 201, answer


def is_permitted(user, right):
    """By the API server, which learns of roles and bindings a moment after they are made."""
    resource, _, subresource = right.resource.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {"verb": right.verb, "group": group, "resource": plural, "subresource": subresource,
                  "namespace": "" if right.scope == EVERYWHERE else right.scope, "name": right.names[0] if right.names else ""}
    status, answer = api().request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {
        "spec": {"user": user, "resourceAttributes": attributes}})
    assert status == 201, answer
    return answer["status"]["allowed"]


@functools.cache
def folder():
    path = tempfile.mkdtemp(prefix="lockstep-rights-")
    atexit.register(shutil.rmtree, path)
    return pathlib.Path(path)


@functools.cache
def kubeconfig(release):
    """That of the account of a release, made with its rights; a command says who it is, as clouds have it."""
    documents = chart_objects(release)
    for document in documents:
        create(document)
    for right in (min(rights_of(documents, binding)) for binding in bindings(documents)):
        until(f"the account may {right}", lambda right=right: is_permitted(release.user, right), poll=0.005)
    return write_kubeconfig(release)


def write_kubeconfig(release):
    status, answer = api().request("POST", PATHS["ServiceAccount"].format(release.namespace) + f"/{release.name}/token",
                                   {"spec": {"expirationSeconds": TOKEN_SECONDS}})
    assert status == 201, answer
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": answer["status"]["token"]}}
    login = folder() / f"login-{release.namespace}-{release.name}"
    login.write_text(f"#!/bin/sh\nprintf '%s' '{json.dumps(credential)}'\n")
    login.chmod(0o700)
    path = folder() / f"{release.namespace}-{release.name}.kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": cluster()}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": f"./{login.name}",
                                                  "interactiveMode": "Never"}}}]}))
    return str(path)


@functools.cache
def cluster():
    """That of the administrator's kubeconfig."""
    view = [KUBECTL, "config", "view", "--raw", "--minify", "--output=json"]
    found = json.loads(subprocess.run(view, check=True, stdout=subprocess.PIPE).stdout)["clusters"][0]["cluster"]
    if "certificate-authority" in found:
        authority = pathlib.Path(found.pop("certificate-authority")).read_bytes()
        found["certificate-authority-data"] = base64.b64encode(authority).decode()
    return found


def log():
    return pathlib.Path(os.environ["LOCKSTEP_CLUSTER"], "log/audit.log")


def log_size():
    return log().stat().st_size if log().exists() else 0


def requests(since=0, mark=""):
    """What service accounts have asked for, from lines with `mark` after the first bytes of the log."""
    if not log_size():
        return set()
    with log().open("rb") as file:
        if since:  # which may have been in the middle of a line
            file.seek(since - 1)
            file.readline()
        lines = file.read().split(b"\n")[:-1]  # the last may be half written
    return {request_of(json.loads(line)) for line in lines if mark.encode() in line}


def request_of(event):
    what = event.get("objectRef", {})
    resource = what.get("resource", event["requestURI"]) + (f"/{what['subresource']}" if "subresource" in what else "")
    return Request(event["user"]["username"], event["verb"], resource_text(what.get("apiGroup"), resource), what.get("namespace", ""),
                   what.get("name", ""), event.get("annotations", {}).get("authorization.k8s.io/decision") == FORBIDDEN)


def used(release):
    """Those of its rights without which a request of the account would have been refused. The log has a request a moment after its answer."""
    asked = [request for request in requests() if request.user == release.user]
    return {right for right in granted(release) if any(right.permits(request) for request in asked)}


def may_do_without(request):
    return (request.verb, request.resource) in MAY_BE_REFUSED and not is_permitted(request.user, Right(EVERYWHERE, "list", "pods", ()))


def missing(since):
    return sorted(request for request in requests(since, f'"{FORBIDDEN}"') if request.is_refused and not may_do_without(request))
