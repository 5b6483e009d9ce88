"""The commands in README.md, docs/*.md and the chart's README.md, and where each of them is run as it stands.

Words in capitals stand for a name of the reader's.
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "charts" / "lockstep" / "README.md"]
PROGRAMS = ("./", "lockstep ", "kubectl ", "cmake ", "helm ")

# tests/integration/documents/run.py runs these in a fresh folder, in this order.
IN_A_FOLDER = [
    "lockstep models",
    "lockstep run job.yaml",
    "lockstep plot FOLDER",
    "lockstep checkpoint ls URI",
    "lockstep checkpoint verify URI",
    "lockstep convert pytorchjob.yaml > job.yaml",
    "lockstep validate job.yaml",
]
# tests/e2e/plugin_test.py runs these on a job that trains, in this order.
IN_A_CLUSTER = [
    "cmake --install build/release --component kubectl --prefix /usr/local",
    "kubectl explain dtj.spec",
    "kubectl lockstep status fashion-mnist --watch",
    "kubectl lockstep logs fashion-mnist --rank 1 --follow",
    "kubectl lockstep checkpoint fashion-mnist --wait",
    "kubectl lockstep scale fashion-mnist 4",
    "kubectl get dtj JOB -o wide",
    "kubectl describe dtj JOB",
    "kubectl logs JOB-worker-0",
    "kubectl get dtj JOB -o jsonpath='{.status.restarts}'",
    "kubectl get pods -l lockstep.dev/job=JOB",
    "kubectl annotate dtj JOB lockstep.dev/profile=5",
]
# tests/e2e/release_test.py runs these, in this order.
IN_A_RELEASE = [
    "kubectl delete dtj --all --all-namespaces",
    "helm uninstall lockstep --namespace lockstep-system",
    "kubectl -n lockstep-system delete lease/lockstep-leader secret/lockstep-rendezvous-tls",
    "kubectl delete crd distributedtrainingjobs.lockstep.dev",
    "helm install lockstep charts/lockstep --namespace lockstep-system --create-namespace",
    "kubectl -n lockstep-system get pods",
    "kubectl -n lockstep-system get lease --output=yaml",
    "helm test lockstep --namespace lockstep-system",
]
# Named in passing, without what they need: tried with --help.
NAMES = ["helm install --take-ownership", "helm rollback", "helm test", "helm uninstall", "helm upgrade", "kubectl -n NAMESPACE describe dtj JOB", "kubectl apply",
         "kubectl cordon NODE", "kubectl delete pod", "kubectl delete pod POD", "kubectl describe dtj", "kubectl describe node",
         "kubectl get dtj --output=wide", "kubectl get pod POD --output=wide", "kubectl get pod POD --output=yaml", "kubectl logs",
         "kubectl logs --previous", "kubectl top pod", "kubectl lockstep", "lockstep checkpoint", "lockstep convert", "lockstep run", "lockstep validate"]
# The others, each with the reason.
NOT_RUN = {
    "./quickstart": "installs and builds everything, for minutes",
    "./quickstart --local": "the same",
    "./quickstart --kubeconfig FILE --registry PREFIX": "wants a registry",
    "./quickstart --down": "ends what ./quickstart has started",
    "./verify": "runs the tests, this one among them",
    "export LOCKSTEP_TOKEN=$(openssl rand -hex 16)": "part of a script for Slurm: tests/integration/machines runs one",
    "srun --ntasks-per-node=1 lockstep run job.yaml --checkpoint-uri file:///scratch/$USER/job": "the same",
    "kubectl get pytorchjobs -o yaml | lockstep convert - > jobs.yaml":
        "wants Kubeflow: tests/integration/convert gives a list to standard input",
    "kubectl get dtj JOB -o jsonpath='{.status.conditions[?(@.type==\"CheckpointsRemoved\")].message}'":
        "wants a removal that fails: tests/integration/operator/removal_test.py reads that condition",
    """kubectl patch dtj JOB --type merge -p '{"spec":{"checkpoint":{"deleteWithJob":false}}}'""": "the same: it lets the job go",
    "helm upgrade lockstep charts/lockstep --namespace lockstep-system --reuse-values --set dashboards.enabled=true \\":
        "wants the Prometheus operator: tests/integration/chart holds what these values make against its definitions",
    "helm install research charts/lockstep --namespace research-system --create-namespace \\":
        "a second installation: tests/integration/operator/installations_test.py lets two share an API server",
    "kubectl create clusterrolebinding lockstep-metrics --clusterrole=lockstep-system:lockstep-metrics-reader --serviceaccount=monitoring:prometheus":
        "wants a Prometheus: tests/integration/operator/process_test.py binds such an account",
    "kubectl get workloads": "wants Kueue",
    "kubectl describe clusterqueue": "wants Kueue",
}


def outside_fences(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(text):
    """Lines of indented blocks without their comments, and code within sentences that begins with one of our programs."""
    plain = outside_fences(text)
    for line in re.findall(r"^ {4}(\S.*)$", plain, re.MULTILINE):
        if not line.startswith("#"):  # such as #SBATCH
            yield re.sub(r"\s+#\s.*$", "", line)
    for line in re.findall(r"`([^`]+)`", re.sub(r"^ {4}.*$", "", plain, flags=re.MULTILINE)):
        line = " ".join(line.split())  # it may go on in the next line
        if line.startswith(PROGRAMS):
            yield line


def written():
    """command -> the documents that it stands in."""
    found = {}
    for document in DOCUMENTS:
        for command in commands(document.read_text()):
            found.setdefault(command, set()).add(str(document.relative_to(ROOT)))
    return found


def manifests():
    """[(document, text)] of all whole objects in fences."""
    return [(document.name, text) for document in DOCUMENTS
            for text in re.findall(r"^```yaml\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL) if "kind:" in text]


def filled_in(command, **names):
    for name, value in names.items():
        command = re.sub(rf"\b{name}\b", value, command)
    return command
