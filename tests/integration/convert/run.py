"""`lockstep convert` as a user calls it: what it writes where, its exit codes, and that what it writes is valid and runs."""
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
from build_folder import BIN
from cases import expect

LOCKSTEP = BIN / "lockstep"
JOBS = ROOT / "tests" / "unit" / "runtime" / "tools" / "convert" / "pytorchjobs"
SECONDS = 120


def lockstep(*arguments, text=None):
    return subprocess.run([LOCKSTEP, *arguments], input=text, capture_output=True, text=True, check=False, timeout=SECONDS)


def pytorchjob(command, nproc="auto", managed_by=None):
    pods = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "none", "command": command}]}}}
    spec = {"nprocPerNode": nproc, "pytorchReplicaSpecs": {"Master": pods, "Worker": pods}}
    if managed_by:
        spec["runPolicy"] = {"managedBy": managed_by}
    # JSON is YAML, and Python writes its texts as JSON does where they are plain.
    return repr({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a"}, "spec": spec})


def validate(text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return lockstep("validate", file.name)


def test_what_it_writes_is_valid():
    for job in sorted(JOBS.glob("*.yaml")):
        done = lockstep("convert", str(job))
        expect(done.returncode == 0, f"{job.name}: {done.stderr}")
        expect(done.stdout == (JOBS / "becomes" / job.name).read_text(), f"{job.name}: {done.stdout}")
        checked = validate(done.stdout)
        expect(checked.returncode == 0, f"{job.name}: {checked.stderr}")
        piped = lockstep("convert", "-", text=job.read_text())
        expect(piped.stdout == done.stdout, f"{job.name}: from standard input it writes {piped.stdout}")


def test_what_would_do_something_else_needs_force():
    job = pytorchjob(["python3", "t.py"], managed_by="kueue.x-k8s.io/multikueue")
    done = lockstep("convert", "-", text=job)
    expect(done.returncode == 1 and done.stdout == "", f"{done.returncode}: {done.stdout}")
    expect("standard input: error: PyTorchJob a: spec.runPolicy.managedBy: cannot be kept" in done.stderr, done.stderr)
    expect("--force writes it anyway" in done.stderr, done.stderr)
    forced = lockstep("convert", "--force", "-", text=job)
    expect(forced.returncode == 0 and validate(forced.stdout).returncode == 0, f"{forced.returncode}: {forced.stderr}")


def test_what_is_not_valid_is_an_error_with_force_too():
    done = lockstep("convert", "--force", "-", text=pytorchjob([]))
    expect(done.returncode == 1 and "kind: DistributedTrainingJob" in done.stdout, f"{done.returncode}: {done.stdout}")
    expect("a: the converted job is not valid: spec.worker.template.spec.containers[trainer].command: is required" in done.stderr, done.stderr)


def test_what_is_no_job_is_refused():
    for text, message in (("kind: [", "not YAML"), ("kind: Pod\n", "holds no PyTorchJob")):
        done = lockstep("convert", "-", text=text)
        expect(done.returncode == 2 and message in done.stderr and not done.stdout, f"{done.returncode}: {done.stderr}")
    done = lockstep("convert", "/no/such/file")
    expect(done.returncode == 2 and "/no/such/file" in done.stderr, done.stderr)


def test_what_it_writes_runs():
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "script.py")
        script.write_text("import os, sys\nopen(sys.argv[1] + '/' + os.environ['RANK'] + '-of-' + os.environ['WORLD_SIZE'], 'w')\n")
        command = ["torchrun", "--nnodes=2", "--rdzv_backend=c10d", "--nproc_per_node", "2", str(script), folder]
        job = pathlib.Path(folder, "job.yaml")
        done = lockstep("convert", "-", text=pytorchjob(command))
        expect(done.returncode == 0, done.stderr)
        job.write_text(done.stdout)
        ran = lockstep("run", str(job), "--folder", folder + "/run")
        expect(ran.returncode == 0, ran.stdout + ran.stderr)
        ranks = sorted(path.name for path in pathlib.Path(folder).glob("*-of-*"))
        # Rank 0's pod ends the job, as in Kubeflow, so others may not come so far.
        expect({"0-of-4", "1-of-4"} <= set(ranks), f"{ranks}\n{ran.stdout}")
