"""Who may include whom: the two tables below, compared with the #include lines of operator/ and runtime/; no module includes itself through others.

Libraries link only what their CMakeLists.txt names, but every include starts at the root: a header alone would slip through.
"""
import graphlib
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
from cases import expect


def below(folder, *names):
    return {f"{folder}/{name}" for name in names}


def common(*names):
    return below("runtime/common", *names)


def operator(*names):
    return below("operator", *names)


def runtime(*names):
    return below("runtime", *names)


# Folder -> folders whose headers it may include, beside its own. A folder that is not here may hold no sources.
MAY_INCLUDE = {
    # Shared by all programs: no LibTorch, nothing of theirs.
    "runtime/common/base": set(),
    "runtime/common/command_line": common("base"),
    "runtime/common/http": common("base"),
    "runtime/common/protocol": common("base"),
    "runtime/common/telemetry": common("base", "http"),
    "runtime/common/rendezvous": common("base", "http", "protocol"),
    "runtime/common/api": common("base", "protocol", "rendezvous"),
    # lockstep-operator: of runtime/ it sees runtime/common only.
    "operator/kube": common("base", "http"),
    "operator/controller": common("base"),
    "operator/sharding": common("base") | operator("kube"),
    "operator/reconcile": common("base", "protocol", "rendezvous", "api") | operator("kube", "controller"),
    "operator/rendezvous": common("base", "http", "protocol", "rendezvous", "api") | operator("kube", "reconcile"),
    "operator/telemetry": common("base", "http", "telemetry", "api", "rendezvous") | operator("controller", "reconcile"),
    "operator": common("base", "command_line", "http", "api")
                | operator("kube", "controller", "reconcile", "rendezvous", "sharding", "telemetry"),
    # lockstep: starts in milliseconds, so never LibTorch, and nothing of a rank.
    "runtime/telemetry": common("base", "http", "protocol", "telemetry"),
    "runtime/witness": common("base", "protocol"),
    "runtime/launch/process": common("base"),
    "runtime/launch/supervisor": common("base", "http", "protocol", "rendezvous", "api") | runtime("telemetry", "launch/process"),
    "runtime/launch/program": common("base", "http", "protocol") | runtime("witness", "launch/process", "launch/supervisor"),
    "runtime/launch/run": common("base", "http", "protocol", "rendezvous", "api") | runtime("launch/process", "launch/supervisor"),
    "runtime/tools/convert": common("base", "api"),
    "runtime/tools/cli": common("base", "command_line", "http", "protocol", "api", "rendezvous")
                         | runtime("tools/convert", *below("launch", "process", "supervisor", "program", "run")),
    # The Python package: in images with any PyTorch, so never LibTorch.
    "runtime/python": common("base") | runtime("data", "storage"),
    # kubectl-lockstep: on people's machines; the cluster through kubectl alone.
    "runtime/tools/kubectl_plugin": common("base", "command_line", "api") | runtime("tools/cli"),
    # lockstep-rank: meets its supervisor through runtime/common/protocol only.
    "runtime/pch": set(),
    "runtime/comm": common("base"),
    "runtime/cuda": common("base") | runtime("comm"),
    "runtime/storage": common("base", "http"),
    "runtime/plugin": common("base", "api") | runtime("sdk/lockstep"),
    "runtime/data": common("base", "api") | runtime("storage", "plugin"),
    "runtime/models": common("base", "api") | runtime("sdk/lockstep", "plugin"),
    "runtime/sdk/lockstep": set(),  # a user's: nothing of ours
    "runtime/sdk/example": set(),
    "runtime/checkpoint": common("base", "protocol", "api") | runtime("storage"),
    # lockstep-checkpoint: what is stored, without LibTorch.
    "runtime/tools/checkpoint_tool": common("base", "command_line") | runtime("checkpoint"),
    "runtime/parallel": common("base") | runtime("comm"),
    "runtime/train/step": common("base", "protocol", "api") | runtime("comm", "data", "checkpoint"),
    "runtime/train/state": common("base", "api") | runtime("comm", "models", "checkpoint", "train/step"),
    # The strategies know each other only where one is made of another.
    "runtime/train/replicated": common("base", "api") | runtime("comm", "data", "models", "parallel", "train/step", "train/state"),
    "runtime/train/local_sgd": common("base", "api", "protocol")
                               | runtime("comm", "data", "parallel", "train/step", "train/replicated"),
    "runtime/train/shards": common("base", "api") | runtime("comm", "checkpoint", "train/step", "train/state"),
    "runtime/train/zero1": common("base", "api")
                           | runtime("comm", "checkpoint", "train/step", "train/state", "train/shards", "train/replicated"),
    "runtime/train/fsdp": common("base", "api")
                          | runtime("comm", "data", "models", "parallel", "checkpoint", "train/step", "train/state", "train/shards"),
    "runtime/train/pipeline": common("base", "api") | runtime("comm", "models", "parallel", "train/step", "train/state"),
    "runtime/train": common("base", "api") | runtime("models", "train/state", "train/replicated", "train/local_sgd", "train/zero1", "train/fsdp", "train/pipeline"),
    # These know no strategy.
    "runtime/train/saves": common("base", "protocol", "api") | runtime("comm", "checkpoint", "train/step", "train/state"),
    "runtime/train/records": common("base", "api") | runtime("comm", "checkpoint", "train/step"),
    "runtime/train/loop": common("base", "protocol", "api")
                          | runtime("comm", "data", "models", "checkpoint", "train/step", "train/state", "train/saves", "train/records"),
    "runtime": common("base", "protocol", "api", "command_line") | runtime("comm", "data", "models", "train", *below("train", "step", "loop", "records")),
}

# Stand-ins for headers of Gloo and CUDA that LibTorch's own headers include: a third party's names, so not in the table above.
STAND_INS = ("runtime/comm/gloo_headers/", "runtime/cuda/toolkit_headers/")

# What an include begins with -> the only places where it may stand. A place is a folder (ends in /) or a file.
CONFINED = {
    ("torch/", "ATen/", "c10/"): (
        "runtime/comm/", "runtime/cuda/", "runtime/data/", "runtime/models/", "runtime/parallel/", "runtime/pch/", "runtime/plugin/", "runtime/sdk/", "runtime/train/",
        "runtime/checkpoint/checkpointer.cc", "runtime/checkpoint/host_copy.h", "runtime/checkpoint/host_copy.cc",
        "runtime/checkpoint/shard_codec.h", "runtime/checkpoint/shard_codec.cc", "runtime/main.cc"),
    ("torch/csrc/distributed/",): ("runtime/comm/connect.cc", "runtime/comm/connected_group.h", "runtime/comm/device_group.cc", "runtime/comm/open_work.cc", "runtime/comm/round_store.cc", "runtime/comm/single_tensor.h", "runtime/cuda/nccl_backend.cc",
                                   "runtime/parallel/data_parallel.cc"),
    ("gloo/",): STAND_INS,
    ("cuda", "cublas", "cusparse", "cusolver", "nccl.h"): ("runtime/cuda/",),
    ("arrow/",): ("runtime/storage/azure_client.cc", "runtime/storage/gcs_client.cc", "runtime/storage/s3_client.cc",
                  "runtime/storage/s3_credentials.cc", "runtime/storage/s3_credentials.h", "runtime/storage/store_client.cc"),
    ("cpprest/", "pplx/"): ("runtime/common/http/cpprest_transport.cc",),
    ("boost/",): ("runtime/common/http/beast_server.cc", "runtime/common/http/beast_session.cc", "runtime/common/http/beast_session.h", "runtime/common/http/channel.cc",
                  "runtime/common/http/cpprest_transport.cc", "runtime/common/http/proxy.cc",
                  "runtime/storage/s3_uploads.cc"),
    ("curl/",): ("runtime/storage/s3_uploads.cc",),
    ("nlohmann/",): ("runtime/common/base/json.h",),
    ("spdlog/",): ("runtime/common/base/log.cc",),
    ("yaml-cpp/",): ("operator/kube/client_config.cc", "runtime/common/api/manifest.cc"),
    ("openssl/",): ("operator/kube/base64.cc", "operator/rendezvous/token_review.cc", "operator/rendezvous/x509.cc",
                    "runtime/common/http/channel.cc", "runtime/common/http/cpprest_transport.cc",
                    "runtime/checkpoint/sha256.cc"),
    ("prometheus/",): ("operator/telemetry/", "runtime/common/telemetry/", "runtime/telemetry/"),
    ("CLI/",): ("operator/config.cc", "runtime/tools/checkpoint_tool/main.cc", "runtime/tools/cli/main.cc", "runtime/common/command_line/", "runtime/tools/kubectl_plugin/main.cc"),
    ("zlib.h",): ("runtime/data/idx.cc", "runtime/checkpoint/block_sums.cc", "runtime/witness/archive.cc"),
    ("jpeglib.h", "jerror.h", "png.h"): ("runtime/data/image.cc",),
    ("lockstep/",): ("runtime/sdk/",),  # as a user installs it
    ("mutex", "shared_mutex"): ("runtime/common/base/mutex.h",),  # elsewhere Mutex, whose rules clang checks
    ("sys/", "arpa/", "netinet/", "linux/"): ("operator/", "runtime/"),
}

# A state makes its stepper, which knows the state. A model may name the models.
MAY_HAVE_CYCLES = ("runtime/train/", "runtime/models/")

# They cost seconds of compile time in every file that sees them.
UMBRELLAS = ("torch/torch.h", "ATen/ATen.h")
MAY_HOLD_UMBRELLAS = "runtime/pch/torch.h"

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def read_sources():
    """path -> text of every C++ file of the programs, committed or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.h", "*.cc"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return {path: (ROOT / path).read_text() for path in listed if not path.startswith("tests/") and (ROOT / path).exists()}


def includes(sources):
    """(path, line, bracket, what) of every include."""
    for path, text in sorted(sources.items()):
        for found in INCLUDE.finditer(text):
            yield path, text.count("\n", 0, found.start()) + 1, found[1], found[2]


def folder_of(path):
    return path.rpartition("/")[0]


def wrong_folders(sources):
    return [f"{path}: {folder_of(path)} is not in the table" for path in sorted(sources)
            if folder_of(path) not in MAY_INCLUDE and not path.startswith(STAND_INS)]


def wrong_directions(sources):
    problems = []
    for path, line, bracket, what in includes(sources):
        here, there = folder_of(path), folder_of(what)
        if bracket == "<" or path.startswith(STAND_INS):
            continue
        if what not in sources:
            problems.append(f'{path}:{line}: "{what}" is no file of ours by its path from the root')
        elif there != here and there not in MAY_INCLUDE.get(here, set()):
            allowed = ", ".join(sorted(MAY_INCLUDE.get(here, set()))) or "nothing else"
            problems.append(f"{path}:{line}: includes {what}; {here} may include {allowed}")
    return problems


def module_cycle(sources):
    """A cycle between modules, "" if there is none. A module is a header with its source, and with the table of its fields."""
    modules = {}
    for path, _, bracket, what in includes(sources):
        here, there = (name.rpartition(".")[0].removesuffix("_fields") for name in (path, what))
        if bracket == '"' and here != there and not here.startswith(MAY_HAVE_CYCLES):
            modules.setdefault(here, set()).add(there)
    try:
        graphlib.TopologicalSorter(modules).prepare()
        return ""
    except graphlib.CycleError as error:
        return " includes ".join(reversed(error.args[1]))


def is_at(path, places):
    return any(path.startswith(place) if place.endswith("/") else path == place for place in places)


def wrong_libraries(sources):
    problems = []
    for path, line, bracket, what in includes(sources):
        if bracket == '"':
            continue
        rules = [places for prefixes, places in CONFINED.items() if what.startswith(prefixes)]
        if not rules and "/" in what:
            problems.append(f"{path}:{line}: <{what}> is of a library that is not in the table")
        for places in rules:
            if not is_at(path, places):
                problems.append(f"{path}:{line}: <{what}> belongs in {', '.join(places)}")
        if what in UMBRELLAS and path.endswith(".h") and path != MAY_HOLD_UMBRELLAS:
            problems.append(f"{path}:{line}: <{what}> in a header; include the part that is needed")
    return problems


def expect_none(problems):
    expect(not problems, "\n  " + "\n  ".join(problems))


def test_every_folder_with_sources_is_in_the_table():
    sources = read_sources()
    expect_none(wrong_folders(sources))
    empty = set(MAY_INCLUDE) - {folder_of(path) for path in sources}
    expect(not empty, f"in the table, but without sources: {sorted(empty)}")


def test_folders_include_only_what_the_table_allows():
    expect_none(wrong_directions(read_sources()))


def test_libraries_stay_where_the_table_says():
    expect_none(wrong_libraries(read_sources()))


def test_the_table_has_no_cycle():
    graphlib.TopologicalSorter(MAY_INCLUDE).prepare()  # raises CycleError


def test_no_module_includes_itself_through_others():
    cycle = module_cycle(read_sources())
    expect(not cycle, cycle)


def test_what_is_wrong_is_found():
    """The checks above would pass as well if they saw nothing."""
    train = {"runtime/train/replicated/step_runner.h": ""}
    for check, path, include in (
            (wrong_directions, "runtime/common/base/clock.h", '"runtime/train/replicated/step_runner.h"'),
            (wrong_directions, "operator/kube/store.cc", '"runtime/train/replicated/step_runner.h"'),
            (wrong_directions, "runtime/launch/process/signals.cc", '"runtime/train/replicated/step_runner.h"'),
            (wrong_directions, "runtime/train/state/training_state.cc", '"step.h"'),
            (wrong_libraries, "operator/process.cc", "<ATen/ATen.h>"),
            (wrong_libraries, "runtime/tools/cli/run.cc", "<torch/torch.h>"),
            (wrong_libraries, "runtime/train/replicated/step_runner.h", "<ATen/ATen.h>"),
            (wrong_libraries, "runtime/train/replicated/step_runner.cc", "<torch/csrc/distributed/c10d/Store.hpp>"),
            (wrong_libraries, "runtime/checkpoint/checkpointer.cc", "<arrow/buffer.h>"),
            (wrong_libraries, "runtime/data/image_folder.cc", "<jpeglib.h>"),
            (wrong_libraries, "operator/kube/store.h", "<mutex>"),
            (wrong_libraries, "operator/main.cc", "<curl/curl.h>")):
        found = check({**train, path: f"#pragma once\n#include {include}\n"})
        expect(len(found) == 1 and found[0].startswith(f"{path}:2: "), f"{include} in {path}: {found}")
    cycle = {"operator/a.h": "", "operator/a.cc": '#include "operator/b.h"', "operator/b.h": '#include "operator/a.h"'}
    found = module_cycle(cycle)
    expect(found in ("operator/a includes operator/b includes operator/a", "operator/b includes operator/a includes operator/b"), found)
    expect(wrong_folders({"runtime/new/file.cc": ""}), "a folder that is not in the table was let in")
