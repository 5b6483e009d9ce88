"""The chart before the tools of others: helm-unittest, helm-docs, kubeconform, kube-score."""
import functools
import json
import pathlib
import re
import subprocess
import tempfile

import pytest
import yaml

import rendering
import schemas
from cases import LIMIT, expect
from rendering import CHART, LOADER, ROOT, VALUE_SETS

BUILD = "tests/integration/chart/tools/build.sh"
UNITTEST, DOCS, CONFORM, SCORE = (rendering.built(BUILD, name) for name in ("helm-unittest", "helm-docs", "kubeconform", "kube-score"))
pytestmark = pytest.mark.skipif(not all((UNITTEST, DOCS, CONFORM, SCORE, rendering.HELM, schemas.present())),
                                reason=f"no helm, or a tool is missing; run: tests/cluster/install.sh && .ci/install && {BUILD}")
# The oldest that the chart installs on, that of the test cluster, the newest that is published.
KUBERNETES = ("1.29.0", "1.34.0", "1.37.0")
EXAMPLES = sorted((ROOT / "crds/examples").glob("*.yaml"))


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **options)


def test_suites_of_helm_unittest_pass():
    result = run(UNITTEST, "--strict", CHART)
    expect(result.returncode == 0, result.stdout + result.stderr)
    suites = re.search(r"Test Suites: (\d+) passed, (\d+) total", result.stdout)
    files = len(list((CHART / "tests").glob("*_test.yaml")))
    expect(suites and set(suites.groups()) == {str(files)}, f"{files} files\n{result.stdout}")


def test_the_page_has_every_value_and_is_up_to_date():
    page = ROOT / "docs/reference/chart-values.md"
    command = [DOCS, "--chart-search-root", CHART, "--sort-values-order", "file", "--template-files", "chart-values.md.gotmpl",
               "--output-file", f"../../{page.relative_to(ROOT)}"]
    made = run(*command, "--dry-run")
    rows = re.findall(r"^\| `(\S+)` \| \w+ \| `.*` \| (.*) \|$", made.stdout, re.MULTILINE)
    expect(len(rows) > 40, f"{len(rows)} values\n{made.stderr}")
    expect(not [name for name, words in rows if not words.strip()], f"without '# -- ...' above it in values.yaml: {[n for n, w in rows if not w.strip()]}")
    expect(made.stdout.strip() == page.read_text().strip(),
           f"{page.relative_to(ROOT)} is not what its template and values.yaml make; run: {' '.join(map(str, command))}")


@functools.cache
def schema_folder():
    folder = tempfile.TemporaryDirectory()
    schemas.write_definitions(pathlib.Path(folder.name))
    for kubernetes in KUBERNETES:
        own = pathlib.Path(folder.name, kubernetes)
        own.mkdir()
        schemas.write_kubernetes(kubernetes, own)
    return folder


def conform(manifests, kubernetes=KUBERNETES[0]):
    """What kubeconform has against manifests (a dictionary of name and text), as text; and how many objects it found good."""
    folder, kind = schema_folder().name, "{{.ResourceKind}}{{.KindSuffix}}.json"
    with tempfile.TemporaryDirectory() as given:
        for name, text in manifests.items():
            pathlib.Path(given, f"{name}.yaml").write_text(text)
        result = run(CONFORM, "-strict", "-summary", "-output", "json", "-kubernetes-version", kubernetes,
                     "-schema-location", f"{folder}/{kubernetes}/{kind}", "-schema-location", f"{folder}/{kind}", given)
    try:
        answer = json.loads(result.stdout)
    except json.JSONDecodeError:
        return result.stdout + result.stderr, 0
    wrong = [f"{pathlib.Path(found['filename']).stem}: {found['kind']} {found['name']}: {found['msg']}" for found in answer["resources"]]
    return "\n".join(wrong), answer["summary"]["valid"]


def test_every_value_set_conforms_to_each_kubernetes():
    manifests = {name: rendering.rendered(values) for name, values in VALUE_SETS.items()}
    objects = sum(1 for text in manifests.values() for document in yaml.load_all(text, LOADER) if document)
    for kubernetes in KUBERNETES:
        wrong, valid = conform(manifests, kubernetes)
        expect(not wrong, f"Kubernetes {kubernetes}:\n{wrong}")
        expect(valid == objects, f"Kubernetes {kubernetes}: {valid} of {objects} objects were looked at")


def test_example_jobs_conform_to_the_definition():
    wrong, valid = conform({path.stem: path.read_text() for path in EXAMPLES})
    expect(not wrong, wrong)
    expect(valid >= len(EXAMPLES) > 10, f"{valid} objects in {len(EXAMPLES)} files")


def test_misspelt_fields_do_not_conform():
    objects = rendering.rendered(VALUE_SETS["everything"])
    examples = {path.stem: path.read_text() for path in EXAMPLES}
    for text, right, misspelt in ((objects, "terminationGracePeriodSeconds:", "terminationGraceSeconds:"),
                                  (objects, "maxUnavailable:", "maximumUnavailable:"),
                                  (objects, "podMetricsEndpoints:", "podMetricsEndpoint:"),
                                  (objects, "honorLabels:", "honourLabels:"),
                                  (examples["gpt"], "microBatchSize:", "microBatch:"),
                                  (examples["gpt"], "steps: 5000", "steps: many")):
        expect(right in text, f"no {right} in what is rendered")
        wrong, _ = conform({"misspelt": text.replace(right, misspelt)})
        expect(wrong, f"{misspelt} was let in")


# What kube-score calls critical and is meant so: the check and the objects, whose names are without the release's.
IGNORED = {
    # Tags are versions and never move. Always would need the registry at each start; image.pullPolicy has it for who wants it.
    "container-image-pull-policy": {"Deployment", "Pod-test"},
    # The root is read-only and there is no volume to write to; logs are for the kubelet to rotate.
    "container-ephemeral-storage-request-and-limit": {"Deployment", "Pod-test"},
    # The images name their user and group, 65532, by number; clusters that assign users (OpenShift) refuse pods that name another.
    "container-security-context-user-group-id": {"Deployment", "Pod-test"},
    # networkPolicy.enabled makes the operator's, where the network enforces it; the pod of `helm test` listens nowhere.
    "pod-networkpolicy": {"Deployment", "Pod-test"},
    # The leader sets the label that is selected, on its own pod, at run time.
    "service-targets-pod": {"Service-rendezvous"},
}


def critical(values):
    """{(check, object): what kube-score says of it}. A CPU limit is not asked for: it would throttle many jobs that start at once."""
    result = run(SCORE, "score", "--kubernetes-version", "v1.29", "--output-format", "json", "--ignore-container-cpu-limit",
                 "--enable-optional-test", "container-seccomp-profile,container-ports-check", "-", input=rendering.rendered(values))
    expect(result.stdout, result.stderr)
    prefix = values.get("fullnameOverride", "lockstep")
    return {(check["check"]["id"], scored["type_meta"]["kind"] + scored["object_meta"]["name"].removeprefix(prefix)):
            " ".join(comment["summary"] for comment in check["comments"] or [])
            for scored in json.loads(result.stdout) for check in scored["checks"] if not check["skipped"] and check["grade"] == 1}


def test_kube_score_finds_nothing_critical():
    ignored = {(check, thing) for check, things in IGNORED.items() for thing in things}
    seen = set()
    for name, values in VALUE_SETS.items():
        found = critical(values)
        expect(found.keys() <= ignored, f"values {name}: { {key: found[key] for key in found.keys() - ignored} }")
        seen |= found.keys()
    expect(seen == ignored, f"ignored for nothing: {ignored - seen}")
