"""The chart on a real API server: install, rights as granted, upgrade, uninstall, and what stays.

Needs KUBECONFIG with an administrator's rights, helm (LOCKSTEP_HELM or on PATH) and kubectl (KUBECTL or on PATH); skipped
without them, and on a cluster whose definition belongs to a Helm release. Nodes are not needed: no pod has to run.
What it makes has random names and is removed; a definition that was there before stays as it was.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import uuid

import yaml

from cases import LIMIT, until

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "lockstep"
CRD = "distributedtrainingjobs.lockstep.dev"
HELM = os.environ.get("LOCKSTEP_HELM") or shutil.which("helm")
KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")
# An operator that runs in the same cluster shall leave the test's job alone.
MANAGED_BY = "lockstep.dev/chart-test"
OWNER = "meta.helm.sh/release-name"


def run(*command, stdin=None, check=True):
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=LIMIT)
    if check and result.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {result.stderr or result.stdout}")
    return result


def kubectl(*arguments, **options):
    return run(KUBECTL, *arguments, **options)


def get(*arguments):
    """The object, or None where there is none."""
    result = kubectl("get", *arguments, "--output=json", "--ignore-not-found")
    return json.loads(result.stdout) if result.stdout else None


def may(user, verb, resource, *arguments):
    return kubectl("auth", "can-i", verb, resource, "--as", user, *arguments, check=False).stdout.strip() == "yes"


def missing():
    if "KUBECONFIG" not in os.environ:
        return "KUBECONFIG is not set"
    if not HELM or not KUBECTL:
        return "helm or kubectl is not there"
    owner = (get("crd", CRD) or {}).get("metadata", {}).get("annotations", {}).get(OWNER)
    return owner and f"the cluster's definition belongs to the Helm release {owner}"


class ChartOnAnApiServer(unittest.TestCase):
    """One release's life, in steps that build on each other."""

    @classmethod
    def setUpClass(cls):
        if reason := missing():
            raise unittest.SkipTest(reason)
        mark = uuid.uuid4().hex[:6]
        cls.release = f"chart-{mark}"
        cls.name = f"{cls.release}-lockstep"
        cls.namespace, cls.team = f"chart-{mark}", f"chart-team-{mark}"
        cls.operator = f"system:serviceaccount:{cls.namespace}:{cls.name}"
        cls.definition_before = get("crd", CRD)
        for namespace in (cls.namespace, cls.team):
            kubectl("create", "namespace", namespace)
            kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        run(HELM, "uninstall", cls.release, "--namespace", cls.namespace, "--ignore-not-found", check=False)
        if cls.definition_before:
            kubectl("delete", "dtj", "--all", "--namespace", cls.team, check=False)
            del cls.definition_before["metadata"]["resourceVersion"]
            kubectl("replace", "--filename=-", stdin=json.dumps(cls.definition_before))
        else:
            kubectl("delete", "crd", CRD, "--ignore-not-found", check=False)
        kubectl("delete", "namespace", cls.namespace, cls.team, "--wait=false", check=False)
        cls.folder.cleanup()

    def helm(self, verb, *arguments, chart=CHART):
        return run(HELM, verb, self.release, str(chart), "--namespace", self.namespace, "--take-ownership", *arguments)

    def test_life_of_a_release(self):
        for step in (self.every_value_set_passes_strict_validation, self.install, self.rights, self.rights_of_people,
                     self.pod_passes_the_restricted_standard, self.first_job_of_the_notes, self.upgrade_brings_a_new_definition,
                     self.upgrade_to_one_namespace, self.uninstall_keeps_definition_and_jobs, self.install_again):
            started = time.monotonic()
            step()
            print(f"ok {step.__name__} ({time.monotonic() - started:.1f} s)", flush=True)

    def every_value_set_passes_strict_validation(self):
        settings = {
            "defaults": [],
            "one namespace": ["--set", f"watchNamespaces={{{self.team}}}"],
            "three replicas, all about pods": [
                "--set", "replicas=3", "--set", "priorityClassName=system-cluster-critical", "--set", "nodeSelector.pool=system",
                "--set", "tolerations[0].operator=Exists", "--set-json",
                'affinity={"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":'
                '{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"a":"b"}}}}]}}',
                "--set-json", 'extraEnv=[{"name":"A","value":"b"}]', "--set", "imagePullSecrets[0].name=pull"],
            "dashboards": ["--set", "dashboards.enabled=true"],
            "network policy": ["--set", "networkPolicy.enabled=true", "--set-json", 'networkPolicy.metricsFrom=[{"namespaceSelector":{}}]'],
            "volumes": ["--set-json", 'extraVolumes=[{"name":"a","emptyDir":{}}]',
                        "--set-json", 'extraVolumeMounts=[{"name":"a","mountPath":"/a"}]'],
        }
        for name, arguments in settings.items():
            if self.definition_before:  # and has its own writer, of whom server-side apply would warn
                arguments = [*arguments, "--set", "crds.install=false"]
            rendered = run(HELM, "template", self.release, str(CHART), "--namespace", self.namespace,
                           "--kube-version", "1.34.0", *arguments).stdout
            # The client's own schemas, then the server's: an unknown or doubled field is an error.
            result = kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-", stdin=rendered)
            self.assertNotIn("Warning", result.stderr, name)
        self.helm("install", "--dry-run=server")

    def install(self):
        self.helm("install")
        crd = get("crd", CRD)
        self.assertEqual(crd["metadata"]["annotations"]["helm.sh/resource-policy"], "keep")
        kubectl("wait", "crd", CRD, "--for=condition=Established", f"--timeout={LIMIT}s")
        self.assertIsNotNone(get("service", f"{self.name}-rendezvous", "--namespace", self.namespace))

    def rights(self):
        here, there = ("--namespace", self.namespace), ("--namespace", self.team)
        tls, lease = f"secrets/{self.name}-rendezvous-tls", f"leases.coordination.k8s.io/{self.name}-leader"
        granted = [("list", "distributedtrainingjobs", *there), ("patch", "distributedtrainingjobs/x", "--subresource=status", *there),
                   ("delete", "distributedtrainingjobs", *there), ("create", "pods", *there), ("delete", "pods", *there), ("watch", "nodes"), ("create", "events.events.k8s.io", *there),
                   ("create", "tokenreviews.authentication.k8s.io"), ("create", "leases.coordination.k8s.io", *here),
                   ("update", lease, *here), ("create", "secrets", *here), ("get", tls, *here), ("patch", "pods", *here)]
        refused = [("list", "secrets", *here), ("get", "secrets/other", *here), ("get", "secrets", *there), ("create", "secrets", *there),
                   ("delete", tls, *here), ("update", "leases.coordination.k8s.io/other", *here),
                   ("create", "distributedtrainingjobs", *there), ("create", "deployments.apps", *here), ("patch", "nodes"),
                   ("create", "pods/x", "--subresource=exec", *there), ("create", "clusterroles"), ("update", "customresourcedefinitions"),
                   ("*", "*")]
        for question, answer in [(q, True) for q in granted] + [(q, False) for q in refused]:
            self.assertEqual(may(self.operator, *question), answer, question)

    def rights_of_people(self):
        there = ("--namespace", self.team)
        for role in ("view", "edit", "admin"):
            kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}er", *there)
        # The controller-manager adds our roles to the built-in ones in its own time.
        until("edit may create jobs", lambda: may("editer", "create", "distributedtrainingjobs", *there))
        until("view may see jobs", lambda: may("viewer", "list", "distributedtrainingjobs", *there))
        until("admin may scale jobs", lambda: may("adminer", "patch", "distributedtrainingjobs/x", "--subresource=scale", *there))
        self.assertFalse(may("viewer", "create", "distributedtrainingjobs", *there))

    def pod_passes_the_restricted_standard(self):
        pods = lambda: get("pods", "--namespace", self.namespace, "--selector", f"app.kubernetes.io/instance={self.release}")["items"]
        until("the operator's pod was admitted", pods)
        self.assertEqual(pods()[0]["spec"]["serviceAccountName"], self.name)

    def first_job_of_the_notes(self):
        notes = run(HELM, "get", "notes", self.release, "--namespace", self.namespace).stdout
        self.assertIn(f"kubectl -n {self.namespace} rollout status deployment/{self.name}", notes)
        job = yaml.safe_load(re.search(r"<<'JOB'\n(.*?)\n *JOB\n", notes, re.S).group(1))
        job["spec"]["managedBy"] = MANAGED_BY
        kubectl("create", "--validate=strict", "--namespace", self.team, "--filename=-", stdin=json.dumps(job))

    def changed_chart(self):
        """The chart one version on, with another column in the definition."""
        chart = pathlib.Path(self.folder.name) / "lockstep"
        shutil.copytree(CHART, chart)
        version = (ROOT / "VERSION").read_text().strip()
        for file, old, new in (("Chart.yaml", f"version: {version}\n", f"version: {version}1\n"),
                               (f"files/{CRD.split('.')[0]}.yaml", "    - name: State\n", "    - name: Condition\n")):
            text = (chart / file).read_text()
            self.assertIn(old, text)
            (chart / file).write_text(text.replace(old, new))
        return chart

    def columns(self):
        return [column["name"] for column in get("crd", CRD)["spec"]["versions"][0]["additionalPrinterColumns"]]

    def upgrade_brings_a_new_definition(self):
        self.helm("upgrade", chart=self.changed_chart())
        self.assertIn("Condition", self.columns())
        self.assertIsNotNone(get("dtj", "first", "--namespace", self.team))
        self.helm("upgrade")
        self.assertIn("State", self.columns())

    def upgrade_to_one_namespace(self):
        self.helm("upgrade", "--set", f"watchNamespaces={{{self.team}}}")
        self.assertTrue(may(self.operator, "create", "pods", "--namespace", self.team))
        for question in (("list", "pods", "--namespace", "default"), ("list", "nodes"), ("list", "distributedtrainingjobs", "--all-namespaces")):
            self.assertFalse(may(self.operator, *question), question)
        self.assertTrue(may(self.operator, "create", "tokenreviews.authentication.k8s.io"))

    def uninstall_keeps_definition_and_jobs(self):
        run(HELM, "uninstall", self.release, "--namespace", self.namespace)
        self.assertIsNotNone(get("crd", CRD))
        self.assertIsNotNone(get("dtj", "first", "--namespace", self.team))
        for kind in ("deployment", "service", "serviceaccount", "role", "rolebinding"):
            self.assertIsNone(get(kind, self.name, "--namespace", self.namespace), kind)
        left = [o["metadata"]["name"] for o in get("clusterroles,clusterrolebindings")["items"] if self.name in o["metadata"]["name"]]
        self.assertEqual(left, [])

    def install_again(self):
        run(HELM, "install", self.release, str(CHART), "--namespace", self.namespace)  # takes the kept definition over by itself
        self.assertIsNotNone(get("dtj", "first", "--namespace", self.team))
