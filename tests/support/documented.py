"""The commands in README.md, the pages of docs/ and the chart's README.md, and where each of them is run as it stands.

A command is a line of a fence marked `sh` or `bash`, a line behind `$ ` in a fence marked `console` (the rest is output), or a line of an
indented block. A line that ends with a backslash continues in the next one. Words in capitals stand for a name of the reader's. Each command stands in one of
the tables below.

Code within a sentence that begins with one of PROGRAMS and stands in no table is a mention: tests/integration/documents/run.py tries it with --help.
"""
import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "charts" / "lockstep" / "README.md"]
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
    "kubectl annotate --overwrite dtj JOB lockstep.dev/profile=5",
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
# tests/integration/documents/tutorials_test.py types these in the folder of the laptop tutorial.
IN_A_TUTORIAL = [
    "lockstep run script.yaml",
    "lockstep run keep.yaml",
    "lockstep plot run/first/checkpoints",
    "lockstep checkpoint ls file://$PWD/run/first/checkpoints",
    "lockstep checkpoint verify file://$PWD/run/first/checkpoints",
    "lockstep checkpoint export file://$PWD/run/first/checkpoints weights.safetensors --weights-only",
]
# tests/e2e/tutorial_test.py types these: the order of docs/tutorials/cluster.md.
IN_A_CLUSTER_TUTORIAL = [
    "kubectl apply -f second.yaml",
    "kubectl lockstep status second",
    "kubectl delete pod second-worker-1",
    "kubectl lockstep status second",
    "kubectl lockstep scale second 4",
    "kubectl lockstep checkpoint second --wait",
    "kubectl lockstep suspend second",
    "kubectl get pods -l lockstep.dev/job=second",
    "kubectl lockstep resume second",
    "kubectl delete dtj second",
]
# The others, each with the reason.
NOT_RUN = {
    "kubectl annotate dtj JOB lockstep.dev/installation-": "wants two installations: tests/integration/operator/installations_test.py has them, and makes this request",
    "./quickstart": "installs and builds everything, for minutes",
    "./quickstart --local": "the same",
    "./quickstart --kubeconfig FILE --registry PREFIX": "wants a registry",
    "./quickstart --down": "ends what ./quickstart has started",
    "kubectl apply -f crds/examples/fashion-mnist.yaml": "./quickstart applies it; tests/e2e trains the same manifest",
    "./verify": "runs the tests, this one among them",
    "export LOCKSTEP_TOKEN=$(openssl rand -hex 16)": "part of a script for Slurm: tests/integration/machines runs one",
    "cmake --install build/release --component sdk --prefix ~/lockstep": "tests/integration/plugin installs it into a folder of its own",
    "srun --ntasks-per-node=1 lockstep run job.yaml --checkpoint-uri file:///scratch/$USER/job": "the same",
    "kubectl get pytorchjobs -o yaml | lockstep convert - > jobs.yaml":
        "wants Kubeflow: tests/integration/convert gives a list to standard input",
    "kubectl get dtj JOB -o jsonpath='{.status.conditions[?(@.type==\"CheckpointsRemoved\")].message}'":
        "wants a removal that fails: tests/integration/operator/removal_test.py reads that condition",
    """kubectl patch dtj JOB --type merge -p '{"spec":{"checkpoint":{"deleteWithJob":false}}}'""": "the same: it lets the job go",
    "kubectl -n lockstep-system describe certificate": "wants cert-manager: tests/integration/operator/certificate_test.py writes such a Secret",
    "kubectl create clusterrolebinding lockstep-metrics --clusterrole=lockstep-system:lockstep-metrics-reader --serviceaccount=monitoring:prometheus":
        "wants a Prometheus: tests/integration/operator/process_test.py binds such an account",
    # The tutorials.
    "export PATH=$PWD/build/release/bin:$PATH": "tests/integration/documents/tutorials_test.py has the programs in PATH",
    "kill -9 $(pgrep --newest lockstep-rank)": "would end ranks of other tests: tests/integration/documents/tutorials_test.py ends one of its own",
    'kill -9 $(pgrep --newest --full "^python3 train.py")': "the same",
    'pkill -9 --full "^python3 train.py"': "the same",
    "pip wheel --no-deps --wheel-dir wheels runtime/python": "compiles: tests/integration/python_package/all_parts.py makes the wheel and installs it",
    "pip install --no-deps wheels/lockstep-*.whl": "the same",
    'eval "$(tests/cluster/cluster env --dir ~/.cache/lockstep/quickstart)"': "wants the cluster of ./quickstart",
    "kubectl apply -f script.yaml": "wants an image of the reader's: tests/e2e/program_test.py runs such a program",
    "kubectl logs script-worker-0": "the same",
    "kubectl apply -f keep.yaml": "wants an image of the reader's: tests/e2e/package_test.py runs such a program",
    "kubectl lockstep status keep": "the same",
    # The how-to guides.
    **dict.fromkeys([
        "kubectl apply -f minimal.yaml", "kubectl wait --for=condition=Complete dtj/minimal --timeout=5m", "kubectl delete dtj minimal",
        "kubectl describe dtj minimal", "kubectl apply -f job.yaml", "kubectl lockstep status JOB", "kubectl lockstep status JOB --watch",
        "kubectl lockstep logs JOB --rank 1", "kubectl lockstep checkpoint JOB", "kubectl get dtj JOB -o jsonpath='{.status.checkpoint}'",
        "kubectl wait dtj/JOB --for=condition=Complete --timeout=2h", "kubectl wait dtj/JOB --for=condition=Ready",
        'kubectl annotate --overwrite dtj JOB lockstep.dev/profile="5 $(date)"',
    ], "on a job of the reader's: tests/e2e does the same to jobs of its own"),
    **dict.fromkeys([
        "kubectl -n lockstep-system rollout status deployment/lockstep", "helm history lockstep --namespace lockstep-system",
        "kubectl get crd", "kubectl get dtj --all-namespaces", "helm rollback lockstep --namespace lockstep-system",
    ], "tests/e2e/release_test.py upgrades, rolls back and waits for operators"),
    "kubectl --namespace lockstep-system port-forward deploy/lockstep 8080": "lasts until it is ended; tests/e2e/observe_test.py reads these metrics",
    "curl localhost:8080/metrics": "the same",
    "kubectl get clusterroles,clusterrolebindings --selector app.kubernetes.io/name=lockstep":
        "tests/integration/chart/install_test.py looks for what an uninstallation leaves",
    """kubectl patch dtj JOB --type merge -p '{"metadata":{"finalizers":null}}'""": "the last resort, where no operator runs",
    **dict.fromkeys([
        ".ci/install", ".ci/install --cuda-image", ".ci/build --programs", "docker/build.sh all", "docker/build.sh worker-cuda",
        "docker/push.sh registry.example/team", "docker/push.sh registry.example/team ARCHIVE",
    ], "build and push for minutes: tests/integration/images does it, but for the GPU image"),
    **dict.fromkeys([
        "version=$(cat VERSION)",
        "docker build -f docker/Dockerfile --target operator --build-arg VERSION=$version --tag registry.example/team/lockstep-operator:$version .",
        "docker build -f docker/Dockerfile --target worker --build-arg VERSION=$version --tag registry.example/team/lockstep-worker:$version .",
        "docker push registry.example/team/lockstep-operator:$version", "docker push registry.example/team/lockstep-worker:$version",
    ], "want Docker; the page says that it was not tried"),
    "skopeo copy --preserve-digests oci-archive:lockstep-operator.tar docker://registry.internal/lockstep/lockstep-operator:$version":
        "wants a registry: tests/integration/images/push_test.py pushes by the same command",
    "skopeo copy --preserve-digests oci-archive:lockstep-worker.tar docker://registry.internal/lockstep/lockstep-worker:$version": "the same",
    "ctr --namespace k8s.io images import lockstep-worker.tar": "wants a node: `cluster load-image` does the same",
    "cmake --install build/release --component kubectl --prefix FOLDER": "as with /usr/local",
    "cmake --install build/release --component worker --prefix FOLDER": "tests/integration/images looks at what it installs",
    **dict.fromkeys([
        "cmake --install build/release --component sdk --prefix ~/lockstep",
        "cmake -S runtime/sdk/example -B build/wide -DCMAKE_PREFIX_PATH=~/lockstep -DLOCKSTEP_TORCH=$(.ci/install --print-site)/torch",
        "cmake --build build/wide",
    ], "tests/integration/plugin builds the example in the same way"),
    "LOCKSTEP_PROFILE=100-104 lockstep run job.yaml": "tests/integration/local has a profile of steps named in advance",
    "kill -USR2 PID": "the same, of a process of its own",
    **dict.fromkeys([
        "export NNODES=2 MASTER_ADDR=10.0.0.7 LOCKSTEP_TOKEN=SECRET", "NODE_RANK=0 lockstep run job.yaml", "NODE_RANK=1 lockstep run job.yaml",
    ], "want two machines: tests/integration/machines has them"),
    "lockstep scaling job.yaml --replicas 1,2,4": "tests/integration/local measures a job of its own",
    "lockstep memory job.yaml --replicas 1,8,64": "tests/integration/local asks for a job of its own",
    "kubectl lockstep scaling fashion-mnist": "wants a job that has had two sizes: tests/integration/kubectl_plugin has one",
    "lockstep checkpoint export s3://bucket/fashion-mnist model.safetensors --average": "tests/integration/checkpoint_tool exports averages from a folder",
    "kubectl get workloads": "wants Kueue",
    "kubectl describe clusterqueue": "wants Kueue",
}


def blocks(text):
    """(kind, line) of each line of a page: the language of its fence (`text` for one without), INDENTED or PROSE.

    What is indented below an item of a list is prose unless it is fenced.
    """
    fence, in_list, after_blank, kind = None, False, True, PROSE
    for line in text.splitlines():
        opening = re.match(r"( *)```+ *(\w*)", line)
        if fence:
            if line.strip() == "```":
                fence = None
            else:
                yield fence[1], line[fence[0]:] if not line[:fence[0]].strip() else line
        elif opening:
            fence = (len(opening[1]), opening[2] or "text")
        else:
            is_indented = line.startswith("    ")
            if line.strip() and not line.startswith(" "):
                in_list = bool(re.match(r"([-*+]|\d+\.) ", line))
            if is_indented and not in_list and (after_blank or kind == INDENTED):
                kind = INDENTED
            else:
                kind = PROSE
            yield kind, line[4:] if kind == INDENTED else line
            after_blank = not line.strip()


INDENTED, PROSE = "indented", "prose"


def without_remark(line):
    return re.sub(r"\s+#\s.*$", "", line).rstrip()


def commands(text):
    """(command, whether it is a mention)"""
    prose, begun = [], ""
    for kind, line in blocks(text):
        if kind == PROSE:
            prose.append(line)
            continue
        if kind == "console" and not begun:
            if not line.startswith("$ "):
                continue
            line = line[2:]
        if kind not in ("console", "sh", "bash", INDENTED) or line.lstrip().startswith("#"):  # such as #SBATCH
            continue
        line = begun + without_remark(line).strip()
        begun = line[:-1].rstrip() + " " if line.endswith("\\") else ""
        if line and not begun:
            yield line, False
    for line in re.findall(r"`([^`]+)`", "\n".join(prose)):
        line = " ".join(line.split())  # it may go on in the next line
        if line.startswith(PROGRAMS):
            yield line, True


def written():
    """({command: the documents that it stands in}, the same of mentions)"""
    found, mentions = {}, {}
    for document in DOCUMENTS:
        for command, is_mention in commands(document.read_text()):
            (mentions if is_mention else found).setdefault(command, set()).add(str(document.relative_to(ROOT)))
    placed = {*IN_A_FOLDER, *IN_A_TUTORIAL, *IN_A_CLUSTER, *IN_A_CLUSTER_TUTORIAL, *IN_A_RELEASE, *NOT_RUN}
    for command in placed & set(mentions):
        found.setdefault(command, set()).update(mentions.pop(command))
    return found, {command: names for command, names in mentions.items() if command not in found}


def manifests():
    """[(document, text)] of all whole objects in fences."""
    fence = re.compile(r"^( *)```yaml\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    return [(document.name, textwrap.dedent(text)) for document in DOCUMENTS for _, text in fence.findall(document.read_text()) if "kind:" in text]


def rendered():
    """Commands that install or upgrade our chart: tests/integration/documents/run.py renders each with its values."""
    return [command for command in written()[0] if re.match(r"helm (install|upgrade) \S+ charts/lockstep\b", command) and command not in IN_A_RELEASE]


def secrets():
    """Commands that create a Secret: tests/integration/documents/run.py has kubectl make each without a cluster."""
    return [command for command in written()[0] if command.startswith("kubectl create secret ")]


def filled_in(command, **names):
    for name, value in names.items():
        command = re.sub(rf"\b{name}\b", value, command)
    return command
