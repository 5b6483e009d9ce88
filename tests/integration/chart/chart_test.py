#!/usr/bin/env python3
"""The chart as text: lint, rendered objects, rights, refusals. Needs helm (LOCKSTEP_HELM, or on PATH), no cluster.

Exits 77, which ctest counts as skipped, where there is no helm.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "lockstep"
CRD = ROOT / "crds" / "distributedtrainingjobs.yaml"
ALERTS = CHART / "alerts.yaml"
KUBE_VERSION = ("--kube-version", "1.34.0")  # a helm built from source believes in a cluster of years ago
HELM = os.environ.get("LOCKSTEP_HELM") or shutil.which("helm")

SUBJECT = {"kind": "ServiceAccount", "name": "lockstep", "namespace": "ml-system"}
# (API group, resource, verbs, names) of everything that the operator may do.
JOB_RIGHTS = {
    ("lockstep.dev", "distributedtrainingjobs", "get list patch update watch", ""),
    ("lockstep.dev", "distributedtrainingjobs/status", "get patch update", ""),
    ("lockstep.dev", "distributedtrainingjobs/finalizers", "update", ""),
    ("", "pods", "create delete get list patch watch", ""),
    ("", "services", "create delete get list patch watch", ""),
    ("", "configmaps", "create delete get list patch watch", ""),
    ("", "serviceaccounts", "create delete get list patch watch", ""),
    ("networking.k8s.io", "networkpolicies", "create delete get list patch watch", ""),
    ("policy", "poddisruptionbudgets", "create delete get list patch watch", ""),
    ("autoscaling", "horizontalpodautoscalers", "create delete get list patch watch", ""),
    ("scheduling.k8s.io", "podgroups", "create delete get list patch watch", ""),
    ("scheduling.x-k8s.io", "podgroups", "create delete get list patch watch", ""),
    ("scheduling.volcano.sh", "podgroups", "create delete get list patch watch", ""),
    ("kueue.x-k8s.io", "workloads", "create delete get list patch watch", ""),
    ("kueue.x-k8s.io", "workloads/status", "get patch", ""),
    ("", "events", "create patch", ""),
    ("events.k8s.io", "events", "create patch", ""),
}
CLUSTER_RIGHTS = {
    ("", "nodes", "get list watch", ""),
    ("kueue.x-k8s.io", "resourceflavors", "get list watch", ""),
    ("kueue.x-k8s.io", "workloadpriorityclasses", "get list watch", ""),
    ("scheduling.k8s.io", "priorityclasses", "get list watch", ""),
}
REVIEW_RIGHTS = {("authentication.k8s.io", "tokenreviews", "create", "")}
RELEASE_RIGHTS = {
    ("coordination.k8s.io", "leases", "create", ""),
    ("coordination.k8s.io", "leases", "get update", "lockstep-leader"),
    ("", "secrets", "create", ""),
    ("", "secrets", "get update", "lockstep-rendezvous-tls"),
    ("", "pods", "get patch", ""),
}


# PyYAML's own parser needs half a second for the definition, libyaml's a hundredth.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def helm(*arguments, values=None):
    """Runs helm with no configuration of the user's; values is a dictionary for --values."""
    with tempfile.TemporaryDirectory() as folder:
        if values is not None:
            file = pathlib.Path(folder) / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            arguments += ("--values", str(file))
        environment = {"PATH": os.environ["PATH"], "HOME": folder}
        return subprocess.run([HELM, *arguments], env=environment, capture_output=True, text=True, timeout=60)


def render(values=None, release="lockstep", namespace="ml-system"):
    result = helm("template", release, str(CHART), "--namespace", namespace, *KUBE_VERSION, values=values)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return [document for document in yaml.load_all(result.stdout, LOADER) if document]


def relabelled(targets, rules):
    """What Prometheus makes of discovered targets: [{"labels": …}], without labels where it drops one."""
    def snake(key):
        return re.sub("[A-Z]", lambda letter: "_" + letter.group().lower(), key)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "targets.json").write_text(json.dumps(targets))
        config = {"scrape_configs": [{
            "job_name": "pods", "file_sd_configs": [{"files": [f"{folder}/targets.json"]}],
            "relabel_configs": [{snake(key): value for key, value in rule.items()} for rule in rules]}]}
        (pathlib.Path(folder) / "prometheus.yaml").write_text(yaml.safe_dump(config))
        done = subprocess.run(["promtool", "check", "service-discovery", "--timeout=3s", f"{folder}/prometheus.yaml", "pods"],
                              capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def of_kind(objects, kind):
    return [o for o in objects if o["kind"] == kind]


def one(objects, kind):
    found = of_kind(objects, kind)
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def rights(role):
    return {(group, resource, " ".join(sorted(rule["verbs"])), " ".join(rule.get("resourceNames", [])))
            for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"]}


def bound_rights(objects, subject=SUBJECT):
    """{(scope, right)} for the subject; the scope is a namespace, or "*" for the cluster."""
    found = set()
    for binding in of_kind(objects, "RoleBinding") + of_kind(objects, "ClusterRoleBinding"):
        assert binding["subjects"] == [subject], binding
        namespace = binding["metadata"].get("namespace")
        roles = [r for r in of_kind(objects, binding["roleRef"]["kind"])
                 if r["metadata"]["name"] == binding["roleRef"]["name"] and r["metadata"].get("namespace") == namespace]
        assert len(roles) == 1, f"binding {binding['metadata']['name']} names {len(roles)} roles"
        found |= {(namespace or "*", right) for right in rights(roles[0])}
    return found


def in_scope(scope, *tables):
    return {(scope, right) for table in tables for right in table}


def operator_pod(objects):
    return one(objects, "Deployment")["spec"]["template"]


EVERYTHING = {
    "replicas": 3, "watchNamespace": "team-a", "fullnameOverride": "trainer",
    "image": {"registry": "", "repository": "acme/op", "digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}], "serviceAccount": {"annotations": {"cloud": "role"}},
    "extraArgs": ["--log-level=debug"], "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/extra", "readOnly": True}],
    "networkPolicy": {"enabled": True, "apiServerPorts": [443, 8443], "metricsFrom": [{"namespaceSelector": {}}]},
    "podAnnotations": {"a": "1"}, "podLabels": {"b": "2"}, "priorityClassName": "high",
    "nodeSelector": {"pool": "system"}, "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prom"}, "interval": "15s"},
                "podMonitor": {"enabled": True, "labels": {"release": "prom"}, "interval": "1m30s"},
                "prometheusRule": {"enabled": True, "labels": {"release": "prom"}, "runbookUrl": "https://books/lockstep",
                                   "disabledAlerts": ["LockstepJobRoundsOften", "LockstepNoLeader"]}},
    "dashboards": {"enabled": True, "labels": {"dashboards": "yes"}, "annotations": {"grafana_folder": "Training"},
                   "namespace": "grafana"},
}
VALUE_SETS = {
    "defaults": {},
    "everything set": EVERYTHING,
    "one namespace": {"watchNamespace": "team-a"},
    "no definition": {"crds": {"install": False}},
    "rights elsewhere": {"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "mine"}},
}


class Lint(unittest.TestCase):
    def test_passes_strictly_with_every_value_set(self):
        for name, values in VALUE_SETS.items():
            with self.subTest(name):
                result = helm("lint", "--strict", *KUBE_VERSION, str(CHART), values=values)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


class Definition(unittest.TestCase):
    def test_copy_in_the_chart_equals_the_source(self):
        self.assertTrue((CHART / "files" / CRD.name).read_bytes() == CRD.read_bytes(),
                        "differs; run: crds/generate.py")

    def test_rendered_definition_is_the_source_with_metadata_added(self):
        rendered = one(render(), "CustomResourceDefinition")
        self.assertEqual(rendered["metadata"].pop("annotations"), {"helm.sh/resource-policy": "keep"})
        self.assertIn("helm.sh/chart", rendered["metadata"].pop("labels"))
        self.assertEqual(rendered, yaml.load(CRD.read_text(), LOADER))

    def test_goes_with_the_release_only_if_asked_to(self):
        crd = one(render({"crds": {"keep": False}}), "CustomResourceDefinition")
        self.assertNotIn("annotations", crd["metadata"])

    def test_is_left_out_on_request(self):
        self.assertEqual(of_kind(render({"crds": {"install": False}}), "CustomResourceDefinition"), [])


class Rights(unittest.TestCase):
    def test_whole_cluster(self):
        self.assertEqual(bound_rights(render()),
                         in_scope("*", JOB_RIGHTS, CLUSTER_RIGHTS, REVIEW_RIGHTS) | in_scope("ml-system", RELEASE_RIGHTS))

    def test_one_namespace_needs_only_token_reviews_from_the_cluster(self):
        self.assertEqual(bound_rights(render({"watchNamespace": "team-a"})),
                         in_scope("*", REVIEW_RIGHTS) | in_scope("team-a", JOB_RIGHTS)
                         | in_scope("ml-system", RELEASE_RIGHTS))

    def test_watching_the_release_namespace_keeps_both_roles(self):
        self.assertEqual(bound_rights(render({"watchNamespace": "ml-system"})),
                         in_scope("*", REVIEW_RIGHTS) | in_scope("ml-system", JOB_RIGHTS, RELEASE_RIGHTS))

    def test_no_wildcard_anywhere(self):
        for name, values in VALUE_SETS.items():
            objects = render(values)
            for role in of_kind(objects, "Role") + of_kind(objects, "ClusterRole"):
                for rule in role["rules"]:
                    with self.subTest(values=name, role=role["metadata"]["name"], rule=rule):
                        self.assertNotIn("*", rule["verbs"] + rule["resources"] + rule["apiGroups"])

    def test_existing_account_and_no_roles(self):
        objects = render(VALUE_SETS["rights elsewhere"])
        for kind in ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"):
            self.assertEqual(of_kind(objects, kind), [])
        self.assertEqual(operator_pod(objects)["spec"]["serviceAccountName"], "mine")

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
    def test_meets_the_restricted_pod_security_standard(self):
        for name, values in VALUE_SETS.items():
            with self.subTest(name):
                spec = operator_pod(render(values))["spec"]
                self.assertEqual(spec["securityContext"], {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532,
                                                           "seccompProfile": {"type": "RuntimeDefault"}})
                container, = spec["containers"]
                self.assertEqual(container["securityContext"],
                                 {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
                                  "readOnlyRootFilesystem": True, "runAsNonRoot": True,
                                  "seccompProfile": {"type": "RuntimeDefault"}})
                self.assertEqual({"hostNetwork", "hostPID", "hostIPC"} & set(spec), set())

    def test_flags_name_the_objects_that_the_chart_makes(self):
        objects = render()
        container = operator_pod(objects)["spec"]["containers"][0]
        self.assertEqual(container["args"], [
            "--leader-elect", "--lease-name=lockstep-leader", "--namespace=$(POD_NAMESPACE)",
            "--metrics-address=0.0.0.0:8080", "--rendezvous-address=0.0.0.0:29400",
            "--rendezvous-url=https://lockstep-rendezvous.ml-system.svc:29400", "--tls-secret=lockstep-rendezvous-tls",
            "--launcher-image=localhost/lockstep-operator:0.1.0",
            "--launcher-pull-policy=IfNotPresent"])
        self.assertEqual([e["name"] for e in container["env"]], ["POD_NAME", "POD_NAMESPACE"])
        self.assertEqual({p["name"]: p["containerPort"] for p in container["ports"]}, {"metrics": 8080, "rendezvous": 29400})
        self.assertEqual(container["livenessProbe"]["httpGet"], {"path": "/healthz", "port": "metrics"})
        self.assertEqual(container["readinessProbe"]["httpGet"], {"path": "/readyz", "port": "metrics"})

    def test_watched_namespace_is_a_flag_only_if_set(self):
        # An empty value would make a flag parser take the next flag for it.
        arguments = operator_pod(render({"watchNamespace": "team-a"}))["spec"]["containers"][0]["args"]
        self.assertIn("--watch-namespace=team-a", arguments)

    def test_image_by_version_by_tag_by_digest(self):
        digest = "sha256:" + "a" * 64
        for image, expected in (({}, "localhost/lockstep-operator:0.1.0"),
                                ({"tag": "edge"}, "localhost/lockstep-operator:edge"),
                                ({"registry": "", "repository": "a/b"}, "a/b:0.1.0"),
                                ({"tag": "edge", "digest": digest}, "localhost/lockstep-operator@" + digest)):
            with self.subTest(image):
                container = operator_pod(render({"image": image}))["spec"]["containers"][0]
                self.assertEqual(container["image"], expected)
                self.assertIn(f"--launcher-image={expected}", container["args"])

    def test_programs_may_be_started_by_another_image(self):
        arguments = operator_pod(render({"launcherImage": "mirror/lockstep:1"}))["spec"]["containers"][0]["args"]
        self.assertIn("--launcher-image=mirror/lockstep:1", arguments)

    def test_is_scraped_unless_that_is_switched_off(self):
        annotations = operator_pod(render())["metadata"]["annotations"]
        self.assertEqual((annotations["prometheus.io/scrape"], annotations["prometheus.io/port"],
                          annotations["prometheus.io/path"]), ("true", "8080", "/metrics"))
        annotations = operator_pod(render({"metrics": {"scrapeAnnotations": False}}))["metadata"]["annotations"]
        self.assertNotIn("prometheus.io/scrape", annotations)

    def test_takes_every_value(self):
        objects = render(EVERYTHING)
        pod, deployment = operator_pod(objects), one(objects, "Deployment")
        container = pod["spec"]["containers"][0]
        self.assertEqual(deployment["spec"]["replicas"], 3)
        self.assertEqual(deployment["metadata"]["name"], "trainer")
        self.assertEqual(container["args"][-1], "--log-level=debug")
        self.assertEqual(container["env"][-1], {"name": "HTTPS_PROXY", "value": "http://proxy:3128"})
        self.assertEqual(container["imagePullPolicy"], "Always")
        self.assertEqual(container["volumeMounts"], EVERYTHING["extraVolumeMounts"])
        self.assertEqual(pod["spec"]["volumes"], EVERYTHING["extraVolumes"])
        self.assertEqual(pod["metadata"]["annotations"]["a"], "1")
        self.assertEqual(pod["metadata"]["labels"]["b"], "2")
        for key in ("imagePullSecrets", "priorityClassName", "nodeSelector", "tolerations", "affinity",
                    "topologySpreadConstraints"):
            self.assertEqual(pod["spec"][key], EVERYTHING[key])


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

    def test_no_budget_that_says_nothing(self):
        for values in ({"replicas": 1}, {"podDisruptionBudget": {"enabled": False}}):
            self.assertEqual(of_kind(render(values), "PodDisruptionBudget"), [])


class Network(unittest.TestCase):
    WORKERS = {"app.kubernetes.io/name": "lockstep-worker", "app.kubernetes.io/managed-by": "lockstep"}
    TEST = {"app.kubernetes.io/name": "lockstep-test", "app.kubernetes.io/instance": "lockstep"}

    def test_is_open_unless_asked(self):
        self.assertEqual(of_kind(render(), "NetworkPolicy"), [])

    def test_lets_workers_meet_and_anybody_scrape(self):
        objects = render({"networkPolicy": {"enabled": True}})
        policy = one(objects, "NetworkPolicy")["spec"]
        self.assertEqual(policy["podSelector"], one(objects, "Deployment")["spec"]["selector"])
        self.assertEqual(policy["policyTypes"], ["Ingress", "Egress"])
        meeting, metrics = policy["ingress"]
        self.assertEqual(meeting, {"ports": [{"port": "rendezvous", "protocol": "TCP"}], "from": [
            {"podSelector": {"matchLabels": self.WORKERS}, "namespaceSelector": {}}, {"podSelector": {"matchLabels": self.TEST}}]})
        self.assertEqual(metrics, {"ports": [{"port": "metrics", "protocol": "TCP"}]})
        out = [port["port"] for rule in policy["egress"] for port in rule["ports"]]
        self.assertEqual(out, [53, 53, 443, 6443])

    def test_narrows_to_one_namespace_and_chosen_scrapers(self):
        meeting, metrics = one(render(EVERYTHING), "NetworkPolicy")["spec"]["ingress"]
        self.assertEqual(meeting["from"][0]["namespaceSelector"], {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}})
        self.assertEqual(metrics["from"][0], {"namespaceSelector": {}})
        self.assertEqual(len(metrics["from"]), 2)  # and the pod of `helm test`

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
        self.assertEqual(monitor["spec"]["endpoints"], [{"port": "metrics", "honorLabels": True}])
        selected = [s for s in of_kind(objects, "Service")
                    if monitor["spec"]["selector"]["matchLabels"].items() <= s["metadata"]["labels"].items()
                    and "metrics" in [p["name"] for p in s["spec"]["ports"]]]
        self.assertEqual([s["metadata"]["name"] for s in selected], ["lockstep-metrics"])

    def test_worker_monitor_looks_where_the_operator_does(self):
        for values, namespaces in (({}, {"any": True}), ({"watchNamespace": "team-a"}, {"matchNames": ["team-a"]})):
            monitor = one(render({"metrics": {"podMonitor": {"enabled": True}}, **values}), "PodMonitor")
            self.assertEqual(monitor["spec"]["namespaceSelector"], namespaces)

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

    def test_rules_are_those_of_the_file(self):
        rendered = one(render({"metrics": {"prometheusRule": {"enabled": True}}}), "PrometheusRule")["spec"]
        self.assertEqual(rendered, yaml.load(ALERTS.read_text(), LOADER))

    def test_rules_can_be_left_out_and_point_to_another_runbook(self):
        groups = one(render(EVERYTHING), "PrometheusRule")["spec"]["groups"]
        rules = {rule["alert"]: rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]}
        self.assertNotIn("LockstepNoLeader", rules)
        self.assertNotIn("LockstepJobRoundsOften", rules)
        self.assertEqual(rules["LockstepOperatorDown"], "https://books/lockstep#lockstepoperatordown")

    def test_any_rule_can_be_left_out(self):
        names = [rule["alert"] for group in yaml.load(ALERTS.read_text(), LOADER)["groups"] for rule in group["rules"]]
        groups = one(render({"metrics": {"prometheusRule": {"enabled": True, "disabledAlerts": names}}}), "PrometheusRule")["spec"]["groups"]
        self.assertEqual(groups, [])

    def test_dashboards_are_the_files_byte_for_byte(self):
        for o in of_kind(render({"dashboards": {"enabled": True}}), "ConfigMap"):
            self.assertEqual(o["metadata"]["labels"]["grafana_dashboard"], "1")
            self.assertEqual(o["metadata"]["namespace"], "ml-system")
            (file, text), = o["data"].items()
            self.assertEqual(text, (CHART / "dashboards" / file).read_text(encoding="utf-8"))

    def test_every_value_is_taken(self):
        objects = render(EVERYTHING)
        for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
            self.assertEqual(one(objects, kind)["metadata"]["labels"]["release"], "prom")
        self.assertEqual(one(objects, "ServiceMonitor")["spec"]["endpoints"][0]["interval"], "15s")
        self.assertEqual(one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["interval"], "1m30s")
        for dashboard in of_kind(objects, "ConfigMap"):
            meta = dashboard["metadata"]
            self.assertEqual((meta["namespace"], meta["annotations"]), ("grafana", {"grafana_folder": "Training"}))
            self.assertEqual(meta["labels"]["dashboards"], "yes")


class Refusals(unittest.TestCase):
    """A wrong value fails the install and is named in the message."""

    CASES = {
        "typo at the top": ({"replica": 2}, "replica"),
        "typo below": ({"image": {"repo": "x"}}, "repo"),
        "number as text": ({"replicas": "two"}, "replicas"),
        "negative": ({"replicas": -1}, "replicas"),
        "unknown pull policy": ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        "digest without its algorithm": ({"image": {"digest": "0" * 64}}, "digest"),
        "list of namespaces": ({"watchNamespace": ["a", "b"]}, "watchNamespace"),
        "not a namespace's name": ({"watchNamespace": "Team_A"}, "watchNamespace"),
        "truth as text": ({"crds": {"keep": "yes please"}}, "keep"),
        "label that is no text": ({"nodeSelector": {"pool": 1}}, "pool"),
        "flag without dashes": ({"extraArgs": ["log-level=debug"]}, "extraArgs"),
        "misspelt switch": ({"metrics": {"podMonitors": {"enabled": True}}}, "podMonitors"),
        "misspelt switch of a switch": ({"metrics": {"podMonitor": {"enable": True}}}, "enable"),
        "interval without a unit": ({"metrics": {"serviceMonitor": {"interval": "30"}}}, "interval"),
        "port that is no number": ({"networkPolicy": {"apiServerPorts": ["https"]}}, "apiServerPorts"),
        "misspelt policy": ({"networkPolicies": {"enabled": True}}, "networkPolicies"),
        "volume without a name": ({"extraVolumes": [{"emptyDir": {}}]}, "extraVolumes"),
        "alert that does not exist": ({"metrics": {"prometheusRule": {"disabledAlerts": ["JobStalled"]}}}, "disabledAlerts"),
        "dashboard label that is no text": ({"dashboards": {"labels": {"grafana_dashboard": 1}}}, "grafana_dashboard"),
    }

    def test_each_wrong_value_is_named(self):
        for name, (values, word) in self.CASES.items():
            with self.subTest(name):
                result = helm("template", "lockstep", str(CHART), *KUBE_VERSION, values=values)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(word, result.stderr)

    def test_too_old_a_cluster(self):
        result = helm("template", "lockstep", str(CHART), "--kube-version", "1.28.9")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("1.29", result.stderr)


class Words(unittest.TestCase):
    def test_every_value_has_a_comment(self):
        previous = ""
        for number, line in enumerate((CHART / "values.yaml").read_text().splitlines(), 1):
            depth = len(line) - len(line.lstrip())
            opens_a_block = re.fullmatch(r"\w+:", line)
            if re.match(r"\s*\w+:", line) and depth <= 2 and not opens_a_block:
                self.assertTrue(previous.lstrip().startswith("#"), f"values.yaml:{number} has no comment: {line}")
            previous = line

    def test_versions_are_the_project_s(self):
        version = re.search(r"project\(lockstep VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))


if __name__ == "__main__":
    if not HELM:
        print("skipped: no helm on PATH and LOCKSTEP_HELM is not set")
        sys.exit(77)
    unittest.main()
