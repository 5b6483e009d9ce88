"""The chart as text: lint, the package, rights, what objects say of each other. Needs helm (rendering.py), no cluster.

What single values do is in the suites of helm-unittest, charts/lockstep/tests; tools_test.py runs them.
"""
import base64
import json
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest
import xml.etree.ElementTree

import pytest
import yaml

import rights
from cases import LIMIT
from rendering import CHART, HELM, KUBE_VERSION, LOADER, ROOT, VALUE_SETS, helm, render

pytestmark = pytest.mark.skipif(not HELM, reason="no helm on PATH and LOCKSTEP_HELM is not set")

CRD = ROOT / "crds" / "distributedtrainingjobs.yaml"
ALERTS, RECORDING = CHART / "alerts.yaml", CHART / "recording.yaml"

SUBJECT = {"kind": "ServiceAccount", "name": "lockstep", "namespace": "ml-system"}
# What an operator for one namespace does without: the cluster's own kinds, and what is of no use without them.
FOR_ALL_NAMESPACES = {"nodes", "leases.coordination.k8s.io", "resourceflavors.kueue.x-k8s.io", "workloadpriorityclasses.kueue.x-k8s.io",
                      "priorityclasses.scheduling.k8s.io", "workloads.kueue.x-k8s.io", "workloads.kueue.x-k8s.io/status"}
REVIEWS = rights.Right(rights.EVERYWHERE, "create", "tokenreviews.authentication.k8s.io", ())


def relabelled(targets, rules):
    """What Prometheus makes of discovered targets: [{"labels": …}], without labels where it drops one."""
    def snake(key):
        return re.sub("[A-Z]", lambda letter: "_" + letter.group().lower(), key)
    with tempfile.TemporaryDirectory() as folder:
        config = {"scrape_configs": [{
            "job_name": "pods", "static_configs": targets,
            "relabel_configs": [{snake(key): value for key, value in rule.items()} for rule in rules]}]}
        (pathlib.Path(folder) / "prometheus.yaml").write_text(yaml.safe_dump(config))
        done = subprocess.run(["promtool", "check", "service-discovery", "--timeout=3s", f"{folder}/prometheus.yaml", "pods"],
                              capture_output=True, text=True, timeout=LIMIT, check=True)
    return json.loads(done.stdout)


def of_kind(objects, kind):
    return [o for o in objects if o["kind"] == kind]


def one(objects, kind):
    found = of_kind(objects, kind)
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def bound_rights(values=None):
    """What the operator may do."""
    objects = render(values)
    for binding in rights.bindings(objects):
        assert binding["subjects"] == [SUBJECT], binding
    return rights.all_of(objects)


def of_scope(found, scope):
    return {right._replace(scope=None) for right in found if right.scope == scope}


def operator_pod(objects):
    return one(objects, "Deployment")["spec"]["template"]


class Lint(unittest.TestCase):
    def test_passes_strictly_with_every_value_set(self):
        for name, values in VALUE_SETS.items():
            with self.subTest(name):
                result = helm("lint", "--strict", *KUBE_VERSION, str(CHART), values=values)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


class Metadata(unittest.TestCase):
    def test_the_icon_is_a_picture_that_needs_no_download(self):
        chart = yaml.load((CHART / "Chart.yaml").read_text(), LOADER)
        kind, data = chart["icon"].split(",", 1)
        self.assertEqual(kind, "data:image/svg+xml;base64")
        self.assertEqual(xml.etree.ElementTree.fromstring(base64.b64decode(data)).tag, "{http://www.w3.org/2000/svg}svg")
        self.assertEqual(chart["maintainers"], [{"name": "The Lockstep authors"}])


class Package(unittest.TestCase):
    def test_has_what_an_install_needs_and_no_more(self):
        with tempfile.TemporaryDirectory() as folder:
            result = helm("package", str(CHART), "--destination", folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            archive, = pathlib.Path(folder).glob("*.tgz")
            with tarfile.open(archive) as package:
                files = set(package.getnames())
        self.assertEqual({name.split("/")[1] for name in files},
                         {".helmignore", "Chart.yaml", "README.md", "alerts.yaml", "dashboards", "files", "recording.yaml", "templates",
                          "values.schema.json", "values.yaml"})
        self.assertIn("lockstep/templates/tests/reachable.yaml", files)


class Registry(unittest.TestCase):
    def test_every_image_of_the_chart_comes_from_it(self):
        # docker/push.sh pushes under such a prefix.
        values = {"image": {"registry": "registry.example/team"}}
        wanted = f"registry.example/team/lockstep-operator:{(ROOT / 'VERSION').read_text().strip()}"
        objects = render(values)
        pods = [one(objects, "Pod"), operator_pod(objects)]
        self.assertEqual([container["image"] for pod in pods for container in pod["spec"]["containers"]], [wanted] * 2)
        self.assertIn(f"--launcher-image={wanted}", operator_pod(objects)["spec"]["containers"][0]["args"])
        for name, other in VALUE_SETS.items():
            with self.subTest(name):
                text = json.dumps(render({**other, "image": {**other.get("image", {}), **values["image"]}}))
                self.assertEqual(re.findall(r"[\w./-]*localhost/[\w./:-]*", text), [])


class Definition(unittest.TestCase):
    def test_copy_in_the_chart_equals_the_source(self):
        self.assertTrue((CHART / "files" / CRD.name).read_bytes() == CRD.read_bytes(),
                        "differs; run: crds/generate.py")

    def test_rendered_definition_is_the_source_with_metadata_added(self):
        rendered = one(render(), "CustomResourceDefinition")
        self.assertEqual(rendered["metadata"].pop("annotations"), {"helm.sh/resource-policy": "keep"})
        self.assertIn("helm.sh/chart", rendered["metadata"].pop("labels"))
        self.assertEqual(rendered, yaml.load(CRD.read_text(), LOADER))


class Rights(unittest.TestCase):
    """Which verbs and kinds: tests/integration/operator/rights_test.py compares those with what the operator does."""

    def test_one_namespace_needs_only_token_reviews_from_the_cluster(self):
        wide, narrow = bound_rights(), bound_rights({"watchNamespaces": ["team-a"]})
        self.assertEqual({right for right in narrow if right.scope not in ("team-a", "ml-system")}, {REVIEWS})
        self.assertEqual(of_scope(narrow, "ml-system"), of_scope(wide, "ml-system"))
        left_out = of_scope(wide - {REVIEWS}, rights.EVERYWHERE) - of_scope(narrow, "team-a")
        self.assertEqual({right.resource for right in left_out}, FOR_ALL_NAMESPACES)
        self.assertEqual({right.resource for right in of_scope(narrow, "team-a")} & FOR_ALL_NAMESPACES, set())

    def test_watching_the_release_namespace_keeps_both_roles(self):
        apart, together = bound_rights({"watchNamespaces": ["team-a"]}), bound_rights({"watchNamespaces": ["ml-system"]})
        self.assertEqual(together, {right._replace(scope="ml-system") if right.scope == "team-a" else right for right in apart})

    def test_secrets_and_leases_are_those_of_the_release_by_name(self):
        of_others = rights.Right(rights.EVERYWHERE, "get", "leases.coordination.k8s.io", ())  # of the releases that have claimed jobs
        for values, elsewhere in (({}, {of_others}), ({"watchNamespaces": ["team-a"]}, set())):
            found = {right for right in bound_rights(values) if right.resource in ("secrets", "leases.coordination.k8s.io")} - elsewhere
            self.assertEqual({right.scope for right in found}, {"ml-system"})
            self.assertEqual({(right.verb, *right.names) for right in found},
                             {("create",), *((verb, name) for verb in ("get", "update") for name in ("lockstep-leader", "lockstep-rendezvous-tls"))})

    def test_a_certificate_of_somebody_else_is_only_read(self):
        for certificate, secret in (({"secretName": "mine"}, "mine"), ({"issuerRef": {"name": "a"}}, "lockstep-rendezvous-certificate")):
            found = {right for right in bound_rights({"certificate": certificate}) if right.resource == "secrets"}
            self.assertEqual(found, {rights.Right("ml-system", "get", "secrets", (secret,))})

    def test_listed_namespaces_have_the_same_role_each(self):
        one_of_them, both = bound_rights({"watchNamespaces": ["team-a"]}), bound_rights({"watchNamespaces": ["team-a", "team-b"]})
        self.assertEqual(both, one_of_them | {right._replace(scope="team-b") for right in one_of_them if right.scope == "team-a"})

    def test_selected_namespaces_need_the_cluster_and_the_labels_of_namespaces(self):
        labels = {rights.Right(rights.EVERYWHERE, verb, "namespaces", ()) for verb in ("list", "watch")}
        self.assertEqual(bound_rights({"namespaceSelector": {"matchLabels": {"team": "a"}}}), bound_rights() | labels)

    def test_authorized_metrics_need_access_reviews(self):
        review = rights.Right(rights.EVERYWHERE, "create", "subjectaccessreviews.authorization.k8s.io", ())
        for values in ({}, {"watchNamespaces": ["team-a"]}):
            self.assertEqual(bound_rights({**values, "metrics": {"authorization": True}}), bound_rights(values) | {review})

    def test_no_wildcard_anywhere(self):
        for name, values in VALUE_SETS.items():
            objects = render(values)
            for role in of_kind(objects, "Role") + of_kind(objects, "ClusterRole"):
                for rule in role["rules"]:
                    with self.subTest(values=name, role=role["metadata"]["name"], rule=rule):
                        self.assertNotIn("*", rule["verbs"] + rule.get("resources", []) + rule.get("apiGroups", []) + rule.get("nonResourceURLs", []))

    def test_people_get_rights_on_jobs_through_the_built_in_roles(self):
        aggregate = "rbac.authorization.k8s.io/aggregate-to-"
        verbs = {"view": set(), "edit": set(), "admin": set()}
        for role in of_kind(render(), "ClusterRole"):
            for target in verbs:
                if role["metadata"]["labels"].get(aggregate + target) == "true":
                    verbs[target] |= {v for rule in role["rules"] for v in rule["verbs"]}
                    self.assertEqual({g for rule in role["rules"] for g in rule["apiGroups"]}, {"lockstep.dev"})
        self.assertEqual(verbs["view"], {"get", "list", "watch"})
        self.assertEqual(verbs["edit"], {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"})
        self.assertEqual(verbs["admin"], verbs["edit"])

    def test_releases_of_one_name_in_two_namespaces_do_not_clash(self):
        names = []
        for namespace in ("one", "two"):
            names.append({o["metadata"]["name"] for o in render(namespace=namespace) if o["kind"].startswith("ClusterRole")})
        self.assertEqual(names[0] & names[1], set())


class OperatorPod(unittest.TestCase):
    def test_replicas_spread_over_nodes_and_a_drain_takes_one_at_a_time(self):
        objects = render()
        labels = operator_pod(objects)["metadata"]["labels"]
        spread, = operator_pod(objects)["spec"]["topologySpreadConstraints"]
        self.assertEqual((spread["topologyKey"], spread["whenUnsatisfiable"]), ("kubernetes.io/hostname", "ScheduleAnyway"))
        budget = one(objects, "PodDisruptionBudget")["spec"]
        self.assertEqual(budget["maxUnavailable"], 1)
        for selector in (spread["labelSelector"], budget["selector"]):
            self.assertLessEqual(selector["matchLabels"].items(), labels.items())
            self.assertEqual(selector, one(objects, "Deployment")["spec"]["selector"])


class Network(unittest.TestCase):
    TEST = {"app.kubernetes.io/name": "lockstep-test", "app.kubernetes.io/instance": "lockstep"}

    def test_policy_is_that_of_the_operator_s_pods(self):
        objects = render({"networkPolicy": {"enabled": True}})
        self.assertEqual(one(objects, "NetworkPolicy")["spec"]["podSelector"], one(objects, "Deployment")["spec"]["selector"])

    def test_pod_of_the_test_is_nobody_s_operator(self):
        objects = render()
        pod = one(objects, "Pod")
        self.assertEqual(pod["metadata"]["annotations"]["helm.sh/hook"], "test")
        self.assertLessEqual(self.TEST.items(), pod["metadata"]["labels"].items())
        selector = one(objects, "Deployment")["spec"]["selector"]["matchLabels"]
        self.assertFalse(selector.items() <= pod["metadata"]["labels"].items())
        operator = operator_pod(objects)["spec"]
        self.assertEqual(pod["spec"]["securityContext"], operator["securityContext"])
        self.assertEqual(pod["spec"]["containers"][0]["securityContext"], operator["containers"][0]["securityContext"])
        self.assertEqual(pod["spec"]["containers"][0]["image"], operator["containers"][0]["image"])


class Services(unittest.TestCase):
    def test_rendezvous_follows_the_leader_and_metrics_reach_all(self):
        objects = render()
        labels = operator_pod(objects)["metadata"]["labels"]
        services = {s["metadata"]["name"]: s["spec"] for s in of_kind(objects, "Service")}
        self.assertEqual(set(services), {"lockstep-rendezvous", "lockstep-metrics"})
        leader = {"lockstep.dev/leader": "true"}
        self.assertLessEqual(services["lockstep-rendezvous"]["selector"].items(), {**labels, **leader}.items())
        self.assertLessEqual(leader.items(), services["lockstep-rendezvous"]["selector"].items())
        self.assertLessEqual(services["lockstep-metrics"]["selector"].items(), labels.items())
        self.assertEqual(sorted(p["port"] for s in services.values() for p in s["ports"]), [8080, 29400])

    def test_selector_labels_are_not_overridable(self):
        objects = render({"podLabels": {"app.kubernetes.io/instance": "other"}})
        selector = one(objects, "Deployment")["spec"]["selector"]["matchLabels"]
        self.assertLessEqual(selector.items(), operator_pod(objects)["metadata"]["labels"].items())

    def test_names_fit_for_the_longest_release_name(self):
        for o in render(release="r" * 53):
            if o["kind"] == "Service":
                self.assertLessEqual(len(o["metadata"]["name"]), 63)


class Observability(unittest.TestCase):
    KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule", "ConfigMap")

    def made_by(self, values):
        """Names by kind of what the values add to the defaults; everything else stays as it is."""
        before, after = render(), render(values)
        self.assertEqual([o for o in after if o["kind"] not in self.KINDS], before)
        return {kind: [o["metadata"]["name"] for o in of_kind(after, kind)] for kind in self.KINDS if of_kind(after, kind)}

    def test_each_switch_makes_its_objects_and_no_others(self):
        dashboards = [f"lockstep-dashboard-{name}" for name in ("fleet", "operator", "training-job")]
        for values, made in (({}, {}),
                             ({"metrics": {"serviceMonitor": {"enabled": True}}}, {"ServiceMonitor": ["lockstep"]}),
                             ({"metrics": {"podMonitor": {"enabled": True}}}, {"PodMonitor": ["lockstep-workers"]}),
                             ({"metrics": {"prometheusRule": {"enabled": True}}}, {"PrometheusRule": ["lockstep"]}),
                             ({"dashboards": {"enabled": True}}, {"ConfigMap": dashboards})):
            with self.subTest(values):
                self.assertEqual(self.made_by(values), made)

    def test_operator_monitor_reaches_the_metrics_port_of_one_service(self):
        objects = render({"metrics": {"serviceMonitor": {"enabled": True}}})
        monitor = one(objects, "ServiceMonitor")
        selected = [s for s in of_kind(objects, "Service")
                    if monitor["spec"]["selector"]["matchLabels"].items() <= s["metadata"]["labels"].items()
                    and "metrics" in [p["name"] for p in s["spec"]["ports"]]]
        self.assertEqual([s["metadata"]["name"] for s in selected], ["lockstep-metrics"])

    @unittest.skipUnless(shutil.which("promtool"), "no promtool on PATH")
    def test_workers_are_scraped_once_at_the_port_that_their_annotations_name(self):
        monitor = one(render({"metrics": {"podMonitor": {"enabled": True}}}), "PodMonitor")
        rules = monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]
        def pod(address, container, scrape="true"):
            return {"targets": [address], "labels": {
                "__meta_kubernetes_pod_ip": address, "container": container, "pod": f"of-{address}",
                "__meta_kubernetes_pod_annotation_prometheus_io_scrape": scrape,
                "__meta_kubernetes_pod_annotation_prometheus_io_port": "9400"}}
        pods = [pod("10.0.0.1", "trainer"), pod("10.0.0.1", "sidecar"), pod("fd00::1", "trainer"), pod("10.0.0.2", "trainer", "false")]
        found = {tuple(sorted(t["labels"].items())) for t in relabelled(pods, rules) if t["labels"]}
        self.assertEqual({(dict(t)["__address__"], dict(t)["pod"]) for t in found},
                         {("10.0.0.1:9400", "of-10.0.0.1"), ("[fd00::1]:9400", "of-fd00::1")})
        self.assertEqual(len(found), 2, "two targets of one pod")

    @staticmethod
    def groups(**values):
        return one(render({"metrics": {"prometheusRule": {"enabled": True, **values}}}), "PrometheusRule")["spec"]["groups"]

    def test_rules_are_those_of_the_files(self):
        alerts, recording = (yaml.load(path.read_text(), LOADER)["groups"] for path in (ALERTS, RECORDING))
        self.assertEqual(self.groups(), alerts + recording)
        self.assertEqual(self.groups(recordingRules=False), alerts)

    def test_any_rule_can_be_left_out(self):
        names = [rule["alert"] for group in yaml.load(ALERTS.read_text(), LOADER)["groups"] for rule in group["rules"]]
        self.assertEqual(self.groups(disabledAlerts=names, recordingRules=False), [])

    def test_alerts_link_to_their_runbooks_where_the_page_has_an_address(self):
        for group in self.groups(runbookUrl="https://docs.example/monitoring/", recordingRules=False):
            for rule in group["rules"]:
                self.assertEqual(rule["annotations"]["runbook_url"], f"https://docs.example/monitoring/#{rule['alert'].lower()}")

    def test_dashboards_are_the_files_byte_for_byte(self):
        for o in of_kind(render({"dashboards": {"enabled": True}}), "ConfigMap"):
            self.assertEqual(o["metadata"]["labels"]["grafana_dashboard"], "1")
            self.assertEqual(o["metadata"]["namespace"], "ml-system")
            (file, text), = o["data"].items()
            self.assertEqual(text, (CHART / "dashboards" / file).read_text(encoding="utf-8"))


class Versions(unittest.TestCase):
    def test_too_old_a_cluster_is_refused(self):
        result = helm("template", "lockstep", str(CHART), "--kube-version", "1.28.9")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("1.29", result.stderr)
