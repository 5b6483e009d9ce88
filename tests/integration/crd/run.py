"""The custom resource definition on a real API server: each rule has an object that it accepts and one that it refuses,
and the refusal names the field.

Needs KUBECONFIG with the rights to write custom resource definitions, else it is skipped. KUBECTL names the kubectl to use.
"""

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import uuid

import pytest
import yaml

from cases import LIMIT, expect, until
from kube_api import KUBECTL, MERGE, api

ROOT = pathlib.Path(__file__).resolve().parents[3]
CRD = ROOT / "crds" / "distributedtrainingjobs.yaml"
RESOURCE = "distributedtrainingjobs"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/{RESOURCE}.lockstep.dev"
# No operator that runs in the same cluster shall act on these jobs.
MANAGED_BY = "lockstep.dev/crd-test"

BASE = {
    "apiVersion": "lockstep.dev/v1alpha1",
    "kind": "DistributedTrainingJob",
    "metadata": {"name": "job"},
    "spec": {
        "managedBy": MANAGED_BY,
        "worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "worker"}]}}},
        "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 100},
    },
}
ABSENT = object()
ELASTIC = {"minReplicas": 1, "maxReplicas": 4}
TRAINER = ("spec", "worker", "template", "spec", "containers", 0)
POD = ("spec", "worker", "template", "spec")
TRAINING = ("spec", "training")


def changed(job, *changes):
    """A copy of the job in which each (path, value) is set, or taken away."""
    job = copy.deepcopy(job)
    for path, value in changes:
        parent = job
        for key in path[:-1]:
            parent = parent[key] if isinstance(parent, list) else parent.setdefault(key, {})
        if value is ABSENT:
            parent.pop(path[-1], None)
        else:
            parent[path[-1]] = copy.deepcopy(value)
    return job


def at(*path):
    return ("spec",) + path


def rule(**match):
    return {"rules": [{"action": "Restart", **match}]}


def program(*changes):
    """The spec of a job that runs a program of the user's own."""
    return changed(BASE, (TRAINING, ABSENT), (TRAINER + ("command",), ["python3", "train.py"]), *changes)["spec"]


PROGRAM = program()
ONE_PROCESS = changed(BASE, (("spec", "worker", "replicas"), 1), (TRAINING + ("strategy",), "dataparallel"))["spec"]

# name, path, value that is accepted, value that is refused, what the refusal says (part of it)
CREATE_CASES = [
    ("name is a label", ("metadata", "name"), "a" * 50, "a" * 51, "metadata.name must be a label of at most 50"),
    ("name begins with a letter", ("metadata", "name"), "a1", "1a", "metadata.name must be a label"),
    ("name has no dots", ("metadata", "name"), "a-b", "a.b", "metadata.name must be a label"),
    ("min <= max", at("elasticPolicy"), ELASTIC, {"minReplicas": 3, "maxReplicas": 2},
     'spec.elasticPolicy.minReplicas: Invalid value: "object": minReplicas must not exceed maxReplicas'),
    ("replicas within elasticPolicy", at("elasticPolicy"), {"minReplicas": 2, "maxReplicas": 2},
     {"minReplicas": 3, "maxReplicas": 4}, 'spec.worker.replicas: Invalid value: "object": worker.replicas must be within'),
    ("elasticPolicy is complete", at("elasticPolicy"), ELASTIC, {"minReplicas": 1}, "spec.elasticPolicy.maxReplicas"),
    ("replicas is positive", at("worker", "replicas"), 1, 0, "spec.worker.replicas"),
    ("replicas is a number", at("worker", "replicas"), 3, "three", "spec.worker.replicas"),
    ("replicas is bounded", at("worker", "replicas"), 10000, 10001, "spec.worker.replicas"),
    ("managedBy has a domain", at("managedBy"), "kueue.x-k8s.io/multikueue", "multikueue", "spec.managedBy"),
    ("nprocPerNode words", at("nprocPerNode"), "cpu", "gpu", "nprocPerNode must be auto, cpu or a number"),
    ("nprocPerNode number", at("nprocPerNode"), 4, 0, "nprocPerNode must be auto, cpu or a number"),
    ("container of that name", at("worker", "containerName"), "trainer", "main",
     "template.spec.containers must hold a container named main"),
    ("gang.minCount <= replicas", at("schedulingPolicy"), {"gang": {"minCount": 2}}, {"gang": {"minCount": 3}},
     "spec.schedulingPolicy.gang.minCount"),
    ("epochs or steps: not both", TRAINING + ("epochs",), ABSENT, 3, "exactly one of epochs and steps"),
    ("epochs or steps: one", TRAINING + ("steps",), 200, ABSENT, "exactly one of epochs and steps"),
    ("micro batch <= global batch", TRAINING + ("microBatchSize",), 64, 65, "spec.training.microBatchSize"),
    ("global batch is positive", TRAINING + ("globalBatchSize",), 1, 0, "spec.training.globalBatchSize"),
    ("global batch is required", TRAINING + ("globalBatchSize",), 8, ABSENT, "spec.training.globalBatchSize"),
    ("known model", TRAINING + ("model",), {"name": "gpt"}, {"name": "alexnet"}, "spec.training.model.name"),
    ("mlp section", TRAINING + ("model",), {"name": "mlp", "mlp": {"hiddenSizes": []}}, {"name": "cnn", "mlp": {}},
     "spec.training.model.mlp"),
    ("cnn section", TRAINING + ("model",), {"name": "cnn", "cnn": {}}, {"name": "mlp", "cnn": {}},
     "spec.training.model.cnn"),
    ("resnet section", TRAINING + ("model",), {"name": "resnet18", "resnet": {}}, {"name": "mlp", "resnet": {}},
     "spec.training.model.resnet"),
    ("gpt section", TRAINING + ("model",), {"name": "gpt", "gpt": {}}, {"name": "mlp", "gpt": {}},
     "spec.training.model.gpt"),
    ("torchscript section", TRAINING + ("model",), {"name": "torchscript", "torchscript": {"path": "/m.pt"}},
     {"name": "torchscript"}, "spec.training.model.torchscript"),
    ("torchscript file", TRAINING + ("model",), {"name": "torchscript", "torchscript": {"path": "models/m.pt"}},
     {"name": "torchscript", "torchscript": {"path": "https://host/m.pt"}}, "path must be a path in the container"),
    ("plugin section", TRAINING + ("model",), {"name": "plugin", "plugin": {"path": "/p.so", "name": "p"}},
     {"name": "mlp", "plugin": {"path": "/p.so", "name": "p"}}, "spec.training.model.plugin"),
    ("plugin that is missing", TRAINING + ("model",), {"name": "plugin", "plugin": {"path": "/p.so", "name": "p"}}, {"name": "plugin"},
     "plugin, with its path and name, is required where name is plugin"),
    ("the settings of another strategy", TRAINING, {**BASE["spec"]["training"], "strategy": "zero1", "zero1": {"copies": 2}},
     {**BASE["spec"]["training"], "zero1": {"copies": 2}}, "spec.training.zero1"),
    ("the settings of fsdp", TRAINING, {**BASE["spec"]["training"], "strategy": "fsdp", "fsdp": {"copies": 2}},
     {**BASE["spec"]["training"], "fsdp": {"copies": 2}}, "spec.training.fsdp"),
    ("stages belong to hybrid", TRAINING, {**BASE["spec"]["training"], "strategy": "hybrid", "pipeline": {"stages": 4}},
     {**BASE["spec"]["training"], "strategy": "pipeline", "pipeline": {"stages": 4}}, "spec.training.pipeline.stages"),
    ("copies belong to stages", TRAINING, {**BASE["spec"]["training"], "strategy": "pipeline", "pipeline": {"copyEverySteps": 4}},
     {**BASE["spec"]["training"], "pipeline": {"copyEverySteps": 4}}, "spec.training.pipeline"),
    ("stages keep no bits", TRAINING, {**BASE["spec"]["training"], "strategy": "pipeline"},
     {**BASE["spec"]["training"], "strategy": "pipeline", "determinism": "World"}, "spec.training.determinism"),
    ("sharded layers keep no bits", TRAINING, {**BASE["spec"]["training"], "strategy": "fsdp"},
     {**BASE["spec"]["training"], "strategy": "fsdp", "determinism": "World"}, "spec.training.determinism"),
    ("sharded layers of a module", TRAINING,
     {**BASE["spec"]["training"], "model": {"name": "torchscript", "torchscript": {"path": "/m.pt"}}},
     {**BASE["spec"]["training"], "model": {"name": "torchscript", "torchscript": {"path": "/m.pt"}}, "strategy": "fsdp"},
     "spec.training.model.name"),
    ("sharded layers send whole gradients", TRAINING, {**BASE["spec"]["training"], "strategy": "fsdp"},
     {**BASE["spec"]["training"], "strategy": "fsdp", "sync": {"compression": "bf16"}}, "spec.training.sync.compression"),
    ("stages have no shares by speed", TRAINING, {**BASE["spec"]["training"], "strategy": "hybrid"},
     {**BASE["spec"]["training"], "strategy": "hybrid", "balance": "Speed"}, "spec.training.balance"),
    ("stages send whole gradients", TRAINING, {**BASE["spec"]["training"], "strategy": "hybrid"},
     {**BASE["spec"]["training"], "strategy": "hybrid", "sync": {"compression": "bf16"}}, "spec.training.sync.compression"),
    ("stages skip no records", TRAINING,
     {**BASE["spec"]["training"], "data": {"format": "csv", "path": "/d", "csv": {"labelColumn": "y"}, "onCorruptRecord": "Skip"}},
     {**BASE["spec"]["training"], "data": {"format": "csv", "path": "/d", "csv": {"labelColumn": "y"}, "onCorruptRecord": "Skip"},
      "strategy": "pipeline"}, "spec.training.data.onCorruptRecord"),
    ("stages need a model of layers", TRAINING,
     {**BASE["spec"]["training"], "model": {"name": "torchscript", "torchscript": {"path": "/m.pt"}}},
     {**BASE["spec"]["training"], "model": {"name": "torchscript", "torchscript": {"path": "/m.pt"}}, "strategy": "pipeline"},
     "spec.training.model.name"),
    ("one process is one pod", ("spec",), ONE_PROCESS, {**ONE_PROCESS, "worker": {**ONE_PROCESS["worker"], "replicas": 2}}, "spec.worker.replicas"),
    ("one process grows to no more pods", ("spec",), {**ONE_PROCESS, "elasticPolicy": {"minReplicas": 1, "maxReplicas": 1}},
     {**ONE_PROCESS, "elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}}, "spec.elasticPolicy.maxReplicas"),
    ("one process is one rank", ("spec",), {**ONE_PROCESS, "nprocPerNode": 1}, {**ONE_PROCESS, "nprocPerNode": 2}, "spec.nprocPerNode"),
    ("one process has no rank for each processor", ("spec",), {**ONE_PROCESS, "nprocPerNode": "auto"},
     {**ONE_PROCESS, "nprocPerNode": "cpu"}, "spec.nprocPerNode"),
    *[(f"{strategy} and {field}", ("spec",), ONE_PROCESS, {**ONE_PROCESS, "training": {**ONE_PROCESS["training"], "strategy": strategy, field: value}},
       f"spec.training.{where}")
      for strategy in ("dataparallel", "modelparallel") for field, value, where in [
          ("determinism", "World", "determinism"), ("balance", "Speed", "balance"), ("sync", {"compression": "bf16"}, "sync.compression"),
          ("cudaGraph", True, "cudaGraph")]],
    ("modelparallel needs layers", ("spec",), {**ONE_PROCESS, "training": {**ONE_PROCESS["training"], "strategy": "modelparallel"}},
     {**ONE_PROCESS, "training": {**ONE_PROCESS["training"], "strategy": "modelparallel", "model": {"name": "torchscript", "torchscript": {"path": "m.pt"}}}},
     "spec.training.model.name"),
    *[(f"cudaGraph and {field}", TRAINING, {**training, "cudaGraph": True}, {**training, "cudaGraph": True, field: value}, f"spec.training.{where}")
      for training in [BASE["spec"]["training"]] for field, value, where in [
          ("strategy", "localsgd", "cudaGraph"), ("determinism", "World", "determinism"), ("balance", "Speed", "balance"),
          ("data", {"format": "csv", "path": "/d", "csv": {"labelColumn": "y"}, "onCorruptRecord": "Skip"}, "data.onCorruptRecord")]],
    ("a frozen group trains nothing", TRAINING + ("optimizer",), {"groups": [{"match": ["fc1.*"], "frozen": True}, {"match": ["*"], "weightDecay": 0}]},
     {"groups": [{"match": ["fc1.*"], "frozen": True, "weightDecay": 0}]}, "spec.training.optimizer.groups[0].frozen"),
    *[(f"gradientCheckpointing and {field}", TRAINING, {**training, field: value}, {**training, field: value, "gradientCheckpointing": True},
       "spec.training.gradientCheckpointing")
      for training in [BASE["spec"]["training"]] for field, value in [
          ("cudaGraph", True), ("model", {"name": "torchscript", "torchscript": {"path": "/m.pt"}})]],
    ("compression keeps no bits", TRAINING, {**BASE["spec"]["training"], "determinism": "World"},
     {**BASE["spec"]["training"], "determinism": "World", "sync": {"compression": "bf16"}}, "spec.training.sync.compression"),
    ("everySteps belongs to localsgd", TRAINING, {**BASE["spec"]["training"], "strategy": "localsgd", "sync": {"everySteps": 8}},
     {**BASE["spec"]["training"], "sync": {"everySteps": 8}}, "sync.everySteps applies only where strategy is localsgd"),
    ("outer belongs to windows", TRAINING, {**BASE["spec"]["training"], "strategy": "localsgd", "sync": {"outer": {}}},
     {**BASE["spec"]["training"], "sync": {"outer": {}}}, "sync.outer applies only where strategy is localsgd or async"),
    ("async has an outer step, too", TRAINING, {**BASE["spec"]["training"], "strategy": "async", "sync": {"staleness": 1024, "outer": {}}},
     {**BASE["spec"]["training"], "strategy": "async", "sync": {"staleness": 1025}}, "spec.training.sync.staleness"),
    *[(f"ranks of {strategy} have weights of their own", TRAINING, {**BASE["spec"]["training"], "optimizer": {"weightAverage": {}}},
       {**BASE["spec"]["training"], "strategy": strategy, "optimizer": {"weightAverage": {"decay": 0.99}}}, "spec.training.optimizer.weightAverage")
      for strategy in ("localsgd", "async")],
    ("an average decays", TRAINING + ("optimizer",), {"weightAverage": {"decay": 0.9999}}, {"weightAverage": {"decay": 1}},
     "spec.training.optimizer.weightAverage.decay"),
    ("async sends no gradients", TRAINING, {**BASE["spec"]["training"], "strategy": "async"},
     {**BASE["spec"]["training"], "strategy": "async", "sync": {"compression": "bf16"}}, "spec.training.sync.compression"),
    ("async depends on the world", TRAINING, {**BASE["spec"]["training"], "strategy": "async", "determinism": "None"},
     {**BASE["spec"]["training"], "strategy": "async", "determinism": "World"}, "spec.training.determinism"),
    ("async balances by itself", TRAINING, {**BASE["spec"]["training"], "strategy": "async", "balance": "Equal"},
     {**BASE["spec"]["training"], "strategy": "async", "balance": "Speed"}, "spec.training.balance"),
    ("localsgd sends no gradients", TRAINING, {**BASE["spec"]["training"], "strategy": "localsgd"},
     {**BASE["spec"]["training"], "strategy": "localsgd", "sync": {"compression": "bf16"}}, "spec.training.sync.compression"),
    ("localsgd depends on the world", TRAINING, {**BASE["spec"]["training"], "strategy": "localsgd", "determinism": "None"},
     {**BASE["spec"]["training"], "strategy": "localsgd", "determinism": "World"}, "spec.training.determinism"),
    ("width is positive", TRAINING + ("model",), {"name": "mlp", "mlp": {"hiddenSizes": [64]}},
     {"name": "mlp", "mlp": {"hiddenSizes": [0]}}, "spec.training.model.mlp.hiddenSizes[0]"),
    ("embedding is a multiple of heads", TRAINING + ("model",), {"name": "gpt", "gpt": {"embeddingSize": 64, "heads": 4}},
     {"name": "gpt", "gpt": {"embeddingSize": 64, "heads": 5}}, "spec.training.model.gpt.embeddingSize"),
    ("path where needed", TRAINING + ("data",), {"format": "idx", "path": "/d"}, {"format": "idx"},
     "spec.training.data.path"),
    ("no path for synthetic", TRAINING + ("data",), {"format": "synthetic"}, {"format": "synthetic", "path": "/d"},
     "spec.training.data.path"),
    ("no path for plugin", TRAINING + ("data",), {"format": "plugin", "plugin": {"path": "/p.so", "name": "p"}},
     {"format": "plugin", "path": "/d", "plugin": {"path": "/p.so", "name": "p"}}, "spec.training.data.path"),
    ("plugin section of data", TRAINING + ("data",), {"format": "plugin", "plugin": {"path": "/p.so", "name": "p"}},
     {"format": "plugin"}, "spec.training.data.plugin"),
    ("synthetic section", TRAINING + ("data",), {"format": "synthetic", "synthetic": {"samples": 9}},
     {"format": "idx", "path": "/d", "synthetic": {}}, "spec.training.data.synthetic"),
    ("csv section", TRAINING + ("data",), {"format": "csv", "path": "/d", "csv": {"labelColumn": "y"}},
     {"format": "idx", "path": "/d", "csv": {"labelColumn": "y"}}, "spec.training.data.csv"),
    ("classWeights belong to weighted", TRAINING + ("data",), {"format": "synthetic", "sampler": "Weighted", "classWeights": [1, 2]},
     {"format": "synthetic", "classWeights": [1, 2]}, "spec.training.data.classWeights"),
    ("weighted is random", TRAINING + ("data",), {"format": "synthetic", "sampler": "Weighted"},
     {"format": "synthetic", "sampler": "Weighted", "shuffle": False}, "spec.training.data.shuffle"),
    ("scheme of data", TRAINING + ("data",), {"format": "idx", "path": "s3://bucket/folder"},
     {"format": "idx", "path": "http://host/folder"}, "spec.training.data.path"),
    ("data stays in its bucket", TRAINING + ("data",), {"format": "idx", "path": "s3://bucket"},
     {"format": "idx", "path": "s3://bucket/../x"}, "spec.training.data.path"),
    ("secret of remote data", TRAINING + ("data",), {"format": "idx", "path": "s3://b/d", "secretRef": {"name": "s"}},
     {"format": "idx", "path": "/d", "secretRef": {"name": "s"}}, "spec.training.data.secretRef"),
    ("cache of remote data", TRAINING + ("data",), {"format": "idx", "path": "s3://b/d", "cache": "/c"},
     {"format": "idx", "path": "/d", "cache": "/c"}, "spec.training.data.cache"),
    ("cache is absolute", TRAINING + ("data",), {"format": "idx", "path": "s3://b/d", "cache": "/c"},
     {"format": "idx", "path": "s3://b/d", "cache": "c"}, "spec.training.data.cache"),
    ("imageFolder section", TRAINING + ("data",), {"format": "imageFolder", "path": "/d", "imageFolder": {}},
     {"format": "idx", "path": "/d", "imageFolder": {}}, "spec.training.data.imageFolder"),
    ("Skip names records", TRAINING + ("data",), {"format": "imageFolder", "path": "/d", "onCorruptRecord": "Skip"},
     {"format": "npy", "path": "/d", "onCorruptRecord": "Skip"}, "spec.training.data.onCorruptRecord"),
    ("learning rate is positive", TRAINING + ("optimizer",), {"learningRate": 0.5}, {"learningRate": 0},
     "spec.training.optimizer.learningRate"),
    ("nesterov needs momentum", TRAINING + ("optimizer",), {"name": "sgd", "momentum": 0.9, "nesterov": True},
     {"name": "sgd", "nesterov": True}, "spec.training.optimizer.nesterov"),
    ("momentum belongs to sgd and muon", TRAINING + ("optimizer",), {"name": "muon", "momentum": 0.9, "nesterov": True}, {"momentum": 0.9},
     "spec.training.optimizer.momentum"),
    ("muon has momentum", TRAINING + ("optimizer",), {"name": "muon", "momentum": 0.95}, {"name": "muon"}, "spec.training.optimizer.momentum"),
    ("useMuon belongs to muon", TRAINING + ("optimizer",), {"name": "muon", "momentum": 0.95, "groups": [{"match": ["wte.*"], "useMuon": False}]},
     {"name": "lamb", "groups": [{"match": ["wte.*"], "useMuon": False}]}, "spec.training.optimizer.groups"),
    *[(f"{name} needs whole parameters", TRAINING, {**BASE["spec"]["training"], "strategy": "zero1", "optimizer": {"name": name, "momentum": momentum}},
       {**BASE["spec"]["training"], "strategy": "fsdp", "optimizer": {"name": name, "momentum": momentum}}, "spec.training.optimizer.name")
      for name, momentum in (("lamb", 0), ("muon", 0.95))],
    ("step schedule has an interval", TRAINING + ("schedule",), {"name": "step", "decayEverySteps": 5},
     {"name": "step"}, "spec.training.schedule.decayEverySteps"),
    ("interval belongs to step", TRAINING + ("schedule",), {"name": "cosine"},
     {"name": "cosine", "decayEverySteps": 5}, "spec.training.schedule.decayEverySteps"),
    ("warm-up is shorter than steps", TRAINING + ("schedule",), {"warmupSteps": 99}, {"warmupSteps": 100},
     "spec.training.schedule.warmupSteps"),
    ("earlyStop needs evaluation", TRAINING + ("earlyStop",), ABSENT, {"target": 0.9}, "spec.training.earlyStop"),
    ("seed is exact in JSON", TRAINING + ("seed",), 2**53 - 1, 2**53, "spec.training.seed"),
    ("checkpoint scheme", at("checkpoint"), {"uri": "s3://bucket/folder"}, {"uri": "http://bucket/folder"},
     "uri must begin with s3://"),
    ("checkpoint file is absolute", at("checkpoint"), {"uri": "file:///c"}, {"uri": "file://c"},
     "uri must begin with s3://"),
    ("checkpoint bucket", at("checkpoint"), {"uri": "gs://b"}, {"uri": "gs:///b"}, "spec.checkpoint.uri"),
    ("checkpoint container", at("checkpoint"), {"uri": "abfs://box@acct.dfs.core.windows.net/a"}, {"uri": "abfs:///box"}, "spec.checkpoint.uri"),
    ("checkpoint stays in its folder", at("checkpoint"), {"uri": "s3://b/a.b"}, {"uri": "s3://b/../c"},
     "uri must not contain"),
    ("checkpoint uri is required", at("checkpoint"), {"uri": "s3://b"}, {}, "spec.checkpoint.uri"),
    ("secret has a name", at("checkpoint"), {"uri": "s3://b", "secretRef": {"name": "s"}},
     {"uri": "s3://b", "secretRef": {}}, "spec.checkpoint.secretRef.name"),
    ("resume words", at("checkpoint"), {"uri": "s3://b", "resume": "Never"}, {"uri": "s3://b", "resume": "Newest"},
     "resume must be Auto, Never or the step"),
    ("resume step", at("checkpoint"), {"uri": "s3://b", "resume": 400}, {"uri": "s3://b", "resume": -1},
     "resume must be Auto, Never or the step"),
    ("interval words", at("checkpoint"), {"uri": "s3://b", "interval": "Fixed", "intervalSteps": 5}, {"uri": "s3://b", "interval": "auto"},
     "spec.checkpoint.interval"),
    ("interval Auto stands alone", at("checkpoint"), {"uri": "s3://b", "interval": "Auto", "meanTimeBetweenFailuresSeconds": 600},
     {"uri": "s3://b", "interval": "Auto", "intervalSeconds": 60}, "leave out intervalSteps and intervalSeconds"),
    ("keepLast is positive", at("checkpoint"), {"uri": "s3://b", "keepLast": 1}, {"uri": "s3://b", "keepLast": 0},
     "spec.checkpoint.keepLast"),
    ("uploads go on", at("checkpoint"), {"uri": "s3://b", "uploadBytesPerSecond": 1000}, {"uri": "s3://b", "uploadBytesPerSecond": 0},
     "spec.checkpoint.uploadBytesPerSecond"),
    ("deleteWithJob says yes or no", at("checkpoint"), {"uri": "s3://b", "deleteWithJob": True}, {"uri": "s3://b", "deleteWithJob": "Yes"},
     "spec.checkpoint.deleteWithJob"),
    ("keepEverySteps is positive", at("checkpoint"), {"uri": "s3://b", "keepEverySteps": 1}, {"uri": "s3://b", "keepEverySteps": 0},
     "spec.checkpoint.keepEverySteps"),
    ("restore is All or Weights", at("checkpoint"), {"uri": "s3://b", "restore": "Weights"}, {"uri": "s3://b", "restore": "Parameters"},
     "spec.checkpoint.restore"),
    ("heartbeat time-out > interval", at("rendezvous"), {"heartbeatIntervalSeconds": 9},
     {"heartbeatIntervalSeconds": 10}, "spec.rendezvous.heartbeatTimeoutSeconds"),
    ("rule has a match", at("failurePolicy"), rule(onCauses=["Hang"]), rule(),
     "rule must have exactly one of onExitCodes, onPodConditions and onCauses"),
    ("rule has one match", at("failurePolicy"), rule(onPodConditions=[{"type": "DisruptionTarget"}]),
     rule(onCauses=["Hang"], onPodConditions=[{"type": "DisruptionTarget"}]), "rule must have exactly one of"),
    ("0 is not a failure", at("failurePolicy"), rule(onExitCodes={"operator": "NotIn", "values": [0]}),
     rule(onExitCodes={"operator": "In", "values": [0, 1]}), "spec.failurePolicy.rules[0].onExitCodes.values"),
    ("known action", at("failurePolicy"), {"rules": [{"action": "ReplacePod", "onCauses": ["Hang"]}]},
     {"rules": [{"action": "Reboot", "onCauses": ["Hang"]}]}, "spec.failurePolicy.rules[0].action"),
    ("a program has a command", ("spec",), PROGRAM, program((TRAINER + ("command",), ABSENT)),
     "worker.template.spec.containers[trainer].command is required without training"),
    ("a program's command has a word", ("spec",), PROGRAM, program((TRAINER + ("command",), [])),
     "worker.template.spec.containers[trainer].command is required without training"),
    ("a program saves by itself", ("spec",), PROGRAM, program((at("checkpoint"), {"uri": "s3://b"})), "checkpoint needs training"),
    ("steps of a program that nothing observes", ("spec",), program((at("healthPolicy"), {"stepTimeoutSeconds": 9})),
     program((at("healthPolicy"), {"stepTimeoutSeconds": 9}), (at("observability"), {"instrumentation": "None"})),
     "stepTimeoutSeconds and straggler need observability.instrumentation Auto"),
    ("stragglers of a program that nothing observes", ("spec",), program((at("healthPolicy"), {"straggler": {}}), (at("observability"), {"metricsPort": 9401})),
     program((at("healthPolicy"), {"straggler": {}}), (at("observability"), {"instrumentation": "None"})),
     "stepTimeoutSeconds and straggler need observability.instrumentation Auto"),
    ("no policy for hostNetwork", at("network"), {"hostNetwork": True, "networkPolicy": "None"}, {"hostNetwork": True},
     "hostNetwork needs networkPolicy None"),
    ("determinism words", TRAINING + ("determinism",), "World", "world", 'supported values: "None", "World"'),
    ("compression words", TRAINING + ("sync",), {"compression": "fp16"}, {"compression": "topk"}, 'supported values: "fp16", "bf16"'),
    ("successPolicy is an object", at("successPolicy"), {"type": "Any"}, "Any", "spec.successPolicy"),
    ("ranks that write", at("observability"), {"logs": "All"}, {"logs": "all"}, "spec.observability.logs"),
    ("how programs are observed", at("observability"), {"instrumentation": "None"}, {"instrumentation": "none"}, "spec.observability.instrumentation"),
    ("folder of a program's checkpoints", ("spec",), program((at("observability"), {"checkpointFolder": "/checkpoints"})),
     program((at("observability"), {"checkpointFolder": "checkpoints"})), "checkpointFolder must be a path that begins with /"),
    ("a training has its own", at("observability"), {}, {"checkpointFolder": "/checkpoints"}, "checkpointFolder must be absent with training"),
    ("ranks with metrics", at("observability"), {"rankMetricsLimit": 0}, {"rankMetricsLimit": -1}, "spec.observability.rankMetricsLimit"),
    ("metrics port", at("observability"), {"metricsPort": 9400}, {"metricsPort": 80}, "spec.observability.metricsPort"),
    ("cleanPodPolicy words", at("runPolicy"), {"cleanPodPolicy": "None"}, {"cleanPodPolicy": "Some"},
     "spec.runPolicy.cleanPodPolicy"),
    ("restartPolicy of the pods", POD + ("restartPolicy",), "Never", "Always", "spec.worker.template.spec.restartPolicy"),
    ("a container at least", at("worker", "template", "spec", "containers"), [{"name": "trainer", "image": "w"}], [],
     "spec.worker.template.spec.containers"),
    ("quantity", TRAINER + ("resources",), {"limits": {"memory": "512Mi", "cpu": 1}}, {"limits": {"memory": "5 GB"}},
     "spec.worker.template.spec.containers[0].resources.limits.memory"),
    ("pull policy", TRAINER + ("imagePullPolicy",), "IfNotPresent", 3,
     "spec.worker.template.spec.containers[0].imagePullPolicy"),
    ("port number or name", TRAINER + ("readinessProbe",), {"httpGet": {"port": "http"}}, {"httpGet": {"port": {}}},
     "spec.worker.template.spec.containers[0].readinessProbe.httpGet.port"),
]

# name, changes: strict decoding refuses the field by its path
TYPO_CASES = [
    ("in spec", (at("elasticpolicy"), ELASTIC), "spec.elasticpolicy"),
    ("in training", (TRAINING + ("globalBatchsize",), 3), "spec.training.globalBatchsize"),
    ("in a model", (TRAINING + ("model", "depth"), 3), "spec.training.model.depth"),
    ("in a container", (TRAINER + ("imagePullPolice",), "Always"),
     "spec.worker.template.spec.containers[0].imagePullPolice"),
    ("in a resource list", (TRAINER + ("resources",), {"limit": {"cpu": 1}}),
     "spec.worker.template.spec.containers[0].resources.limit"),
    ("in the pod", (POD + ("nodeSelektor",), {"a": "b"}), "spec.worker.template.spec.nodeSelektor"),
    ("in the pod's metadata", (at("worker", "template", "metadata"), {"label": {"a": "b"}}),
     "spec.worker.template.metadata.label"),
    ("a node for all pods", (POD + ("nodeName",), "n"), "spec.worker.template.spec.nodeName"),
]

# name, job as it is, change that is accepted, change that is refused, what the refusal says
RUNNING = changed(BASE)
SUSPENDED = changed(BASE, (at("suspend"), True))
ELASTIC_JOB = changed(BASE, (at("elasticPolicy"), ELASTIC))
UPDATE_CASES = [
    ("fixed replicas", RUNNING, {"worker": {"replicas": 2}}, {"worker": {"replicas": 3}},
     "worker.replicas is fixed without elasticPolicy"),
    ("replicas while suspending", RUNNING, {"suspend": True, "worker": {"replicas": 3}},
     {"suspend": False, "worker": {"replicas": 3}}, "worker.replicas is fixed"),
    ("replicas of a suspended job", SUSPENDED, {"worker": {"replicas": 3}}, {"worker": {"replicas": -3}},
     "spec.worker.replicas"),
    ("replicas of an elastic job", ELASTIC_JOB, {"worker": {"replicas": 4}}, {"worker": {"replicas": 5}},
     "worker.replicas must be within"),
    ("training is fixed", SUSPENDED, {"training": {"steps": 7}}, None, None),
    ("training is fixed while running", RUNNING, {"suspend": True, "training": {"steps": 7}},
     {"training": {"steps": 7}}, "training is fixed while the job runs"),
    ("training does not vanish", changed(RUNNING, (TRAINER + ("command",), ["run"])), {"suspend": True, "training": None}, {"training": None},
     "training is fixed while the job runs"),
    ("managedBy is immutable", RUNNING, {"managedBy": MANAGED_BY}, {"managedBy": "lockstep.dev/other"},
     "managedBy is immutable"),
    ("managedBy does not vanish", RUNNING, {"suspend": True}, {"managedBy": None}, "managedBy is immutable"),
]

DEFAULTS = {
    at("suspend"): False, at("nprocPerNode"): "auto", at("standbyReplicas"): 0, at("successPolicy", "type"): "All",
    at("worker", "containerName"): "trainer", TRAINING + ("strategy",): "ddp", TRAINING + ("precision",): "fp32",
    TRAINING + ("determinism",): "None", TRAINING + ("balance",): "Equal", TRAINING + ("seed",): 0, TRAINING + ("data", "shuffle"): True,
    TRAINING + ("optimizer", "learningRate"): 0.001, TRAINING + ("optimizer", "name"): "adamw",
    TRAINING + ("model", "mlp", "hiddenSizes"): [128], at("elasticPolicy", "shrinkAfterSeconds"): 60,
    at("elasticPolicy", "growDelaySeconds"): 30, at("checkpoint", "keepLast"): 3, at("checkpoint", "resume"): "Auto",
    at("checkpoint", "restore"): "All", at("checkpoint", "onTermination"): "Save", at("checkpoint", "gracePeriodSeconds"): 120,
    at("rendezvous", "joinTimeoutSeconds"): 600, at("rendezvous", "lastCallSeconds"): 3,
    at("rendezvous", "heartbeatIntervalSeconds"): 2, at("rendezvous", "heartbeatTimeoutSeconds"): 10,
    at("failurePolicy", "maxRestarts"): 3, at("failurePolicy", "restartStrategy"): "InPlace",
    at("failurePolicy", "inPlaceLimit"): 3, at("healthPolicy", "firstStepTimeoutSeconds"): 1800,
    at("healthPolicy", "stepTimeoutFactor"): 10, at("healthPolicy", "onHang"): "Restart",
    at("healthPolicy", "straggler", "action"): "Report", at("healthPolicy", "instanceMetadata"): "None", at("runPolicy", "cleanPodPolicy"): "Running",
    at("runPolicy", "forceDeleteAfterSeconds"): 120, at("schedulingPolicy", "gang", "provider"): "Auto",
    at("schedulingPolicy", "topology", "mode"): "Preferred", at("network", "networkPolicy"): "Isolate",
    at("network", "hostNetwork"): False, at("observability", "metricsPort"): 9400,
    at("observability", "logs"): "Rank0", at("observability", "rankMetricsLimit"): 1024,
    at("observability", "instrumentation"): "Auto",
}
WITH_SECTIONS = changed(
    ELASTIC_JOB, (TRAINING + ("model", "mlp"), {}), (TRAINING + ("optimizer",), {}), (at("checkpoint"), {"uri": "s3://b"}),
    (at("rendezvous"), {}), (at("failurePolicy"), {}), (at("healthPolicy"), {"straggler": {}}), (at("runPolicy"), {}),
    (at("schedulingPolicy"), {"gang": {}, "topology": {"key": "k"}}), (at("network"), {}), (at("observability"), {}), (at("successPolicy"), {}),
)

# As much of a pod as one line each can name; nothing of it may be lost.
RICH_TEMPLATE = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
    "spec": {
        "serviceAccountName": "s", "terminationGracePeriodSeconds": 60, "nodeSelector": {"gpu": "h200"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "imagePullSecrets": [{"name": "pull"}], "priorityClassName": "high", "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchExpressions": [
                {"key": "app", "operator": "In", "values": ["x"]}]}}}]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "initContainers": [{"name": "fetch", "image": "i", "command": ["sh", "-c", "true"], "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "trainer", "image": "w", "args": ["a"], "workingDir": "/w",
                "env": [{"name": "A", "value": "1"},
                        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "envFrom": [{"secretRef": {"name": "s", "optional": True}}],
                "ports": [{"containerPort": 9400, "name": "metrics", "protocol": "TCP"}],
                "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "500m"}, "requests": {"memory": "1.5Gi"}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                "livenessProbe": {"httpGet": {"path": "/", "port": 9400}, "periodSeconds": 5},
                "securityContext": {"capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
            },
            {"name": "sidecar", "image": "s"},
        ],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "x"}}]}},
            {"name": "config", "configMap": {"name": "c", "items": [{"key": "k", "path": "p", "mode": 256}]}},
        ],
    },
}


def kubectl(*arguments, stdin=None):
    result = subprocess.run(
        [KUBECTL, *arguments], input=stdin, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=LIMIT,
    )
    return result.returncode, result.stdout


def value_at(document, path):
    for key in path:
        document = document[key]
    return document


def rules_of(schema):
    """All CEL rules that a schema holds, at any depth."""
    if isinstance(schema, list):
        return [rule for entry in schema for rule in rules_of(entry)]
    if not isinstance(schema, dict):
        return []
    return schema.get("x-kubernetes-validations", []) + [
        rule for key, entry in schema.items() if key != "x-kubernetes-validations" for rule in rules_of(entry)]


class Server:
    """The API server and a namespace of this test's own; what it said is remembered."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.jobs = f"/apis/lockstep.dev/v1alpha1/namespaces/{namespace}/{RESOURCE}"
        self.said = []  # messages of all refusals

    def try_create(self, job):
        status, answer = api().request("POST", self.jobs + "?dryRun=All&fieldValidation=Strict", job)
        self.said.append(answer.get("message") or "")
        return status, answer

    def create(self, job, name):
        status, answer = api().request("POST", self.jobs, changed(job, (("metadata", "name"), name)))
        expect(status == 201, answer)
        return answer

    def get(self, name):
        return api().request("GET", f"{self.jobs}/{name}")[1]

    def patch(self, name, patch, subresource="", dry_run=False):
        query = "?dryRun=All" if dry_run else ""
        status, answer = api().request("PATCH", f"{self.jobs}/{name}{subresource}{query}", patch, MERGE)
        self.said.append(answer.get("message") or "")
        return status, answer

    def kubectl(self, verb, *arguments, **options):
        return kubectl(verb, "--namespace", self.namespace, *arguments, **options)

    def apply_definition(self):
        status, text = kubectl("apply", "-f", str(CRD))
        expect(status == 0, text)

        def conditions():  # none yet, right after it was made
            return {c["type"]: c for c in api().request("GET", DEFINITION)[1].get("status", {}).get("conditions") or []}
        until("the CRD is established", lambda: conditions().get("Established", {}).get("status") == "True")
        expect("NonStructuralSchema" not in conditions(), conditions())
        until("the resource is served", lambda: api().request("GET", self.jobs)[0] == 200)
        # The served schema follows the stored one a moment later.
        until("the schema is served", lambda: self.try_create(BASE)[0] == 201)


@pytest.fixture(scope="module")
def server():
    if "KUBECONFIG" not in os.environ:
        pytest.skip("KUBECONFIG is not set")
    if not shutil.which(KUBECTL):
        pytest.skip(f"there is no {KUBECTL}")
    made = Server("crd-" + uuid.uuid4().hex[:8])
    was_there = api().request("GET", DEFINITION)[0] == 200
    try:
        status, answer = api().request("POST", "/api/v1/namespaces", {"metadata": {"name": made.namespace}})
        expect(status == 201, answer)
        made.apply_definition()
        yield made
    finally:
        api().request("DELETE", made.jobs)
        api().request("DELETE", f"/api/v1/namespaces/{made.namespace}")
        if not was_there:  # the next one may want to own it
            kubectl("delete", f"--filename={CRD}")


def named(cases):
    return pytest.mark.parametrize("case", cases, ids=[case[0] for case in cases])


@named(CREATE_CASES)
def test_creation(server, case):
    _, path, good, bad, message = case
    status, answer = server.try_create(changed(BASE, (path, good)))
    expect(status == 201, f"refused: {answer.get('message')}")
    status, answer = server.try_create(changed(BASE, (path, bad)))
    text = answer.get("message", "")
    expect(status in (400, 422) and message in text, f"not refused so: {status} {text}")


def test_v1beta1_needs_no_conversion(server):
    """The step of crds/README.md, played under a group of its own: both versions served, the new one stored, the old one gone.
    Both together must be small enough for a plain `kubectl apply`."""
    group = f"{server.namespace}.lockstep.dev"
    definition = yaml.safe_load(CRD.read_text())
    definition["metadata"]["name"] = f"{RESOURCE}.{group}"
    definition["spec"]["group"] = group
    (old,) = definition["spec"]["versions"]
    new = {**copy.deepcopy(old), "name": "v1beta1", "storage": False}

    def apply(*versions):
        definition["spec"]["versions"] = list(versions)
        status, text = kubectl("apply", "--filename=-", stdin=json.dumps(definition))
        expect(status == 0, text)

    def jobs(version, name=""):
        return f"/apis/{group}/{version}/namespaces/{server.namespace}/{RESOURCE}/{name}".rstrip("/")

    def storage_hash():
        """Discovery's hash of the version in which the API server stores jobs now; the definition's status names that version before it does.
        Discovery itself knows a version a moment after it is served."""
        answer = until("discovery of v1beta1", lambda: (found := api().request("GET", f"/apis/{group}/v1beta1"))[0] == 200 and found[1])
        return next(resource["storageVersionHash"] for resource in answer["resources"] if resource["name"] == RESOURCE)

    def spec(version):
        status, answer = api().request("GET", jobs(version, "job"))
        expect(status == 200 and answer["apiVersion"] == f"{group}/{version}", answer)
        return answer["spec"]

    try:
        apply(old, new)
        until("both versions are served", lambda: all(api().request("GET", jobs(v))[0] == 200 for v in ("v1alpha1", "v1beta1")))
        job = {**changed(WITH_SECTIONS, (at("worker", "template"), RICH_TEMPLATE)), "apiVersion": f"{group}/v1alpha1"}
        status, answer = api().request("POST", jobs("v1alpha1"), job)
        expect(status == 201, answer.get("message"))
        written = answer["spec"]
        expect(spec("v1beta1") == written, "v1beta1 reads another job than v1alpha1 wrote")

        before = storage_hash()
        apply({**old, "storage": False, "deprecated": True}, {**new, "storage": True})
        until("v1beta1 is stored", lambda: storage_hash() != before)
        _, stored = api().request("GET", f"{DEFINITIONS}/{RESOURCE}.{group}")
        expect(stored["status"]["storedVersions"] == ["v1alpha1", "v1beta1"], stored["status"])
        status, answer = api().request("PATCH", jobs("v1beta1", "job"), {"spec": {"worker": {"replicas": 3}}}, MERGE)
        expect(status == 200, answer.get("message"))
        written["worker"]["replicas"] = 3
        expect(spec("v1alpha1") == spec("v1beta1") == written, "the versions differ once v1beta1 is stored")

        status, answer = api().request("PATCH", f"{DEFINITIONS}/{RESOURCE}.{group}/status", {"status": {"storedVersions": ["v1beta1"]}}, MERGE)
        expect(status == 200, answer.get("message"))
        apply({**new, "storage": True})
        until("v1alpha1 is gone", lambda: api().request("GET", jobs("v1alpha1"))[0] == 404)
        expect(spec("v1beta1") == written, "the job went with v1alpha1")
    finally:
        api().request("DELETE", f"{DEFINITIONS}/{RESOURCE}.{group}")


def test_early_stop(server):
    evaluated = changed(BASE, (TRAINING + ("evaluation",), {}))
    for name, early_stop, accepted in (("target", {"target": 0.9}, True), ("neither", {"metric": "loss"}, False)):
        status, answer = server.try_create(changed(evaluated, (TRAINING + ("earlyStop",), early_stop)))
        is_right = status == 201 if accepted else "earlyStop must have target" in answer.get("message", "")
        expect(is_right, f"earlyStop with {name}: {answer.get('message')}")


@named(UPDATE_CASES)
def test_update(server, case):
    _, job, good, bad, message = case
    name = f"update-{UPDATE_CASES.index(case)}"
    server.create(job, name)
    status, answer = server.patch(name, {"spec": good}, dry_run=True)
    expect(status == 200, f"refused: {answer.get('message')}")
    if bad is not None:
        status, answer = server.patch(name, {"spec": bad}, dry_run=True)
        text = answer.get("message", "")
        expect(status == 422 and message in text, f"not refused so: {status} {text}")


@named(TYPO_CASES)
def test_typo(server, case):
    """As a user sees it: plain `kubectl apply`."""
    _, change, path = case
    status, text = server.kubectl("apply", "-f", "-", stdin=json.dumps(changed(BASE, change)))
    expect(status != 0 and f'unknown field "{path}"' in text, text)


def test_defaults(server):
    status, answer = server.try_create(WITH_SECTIONS)
    expect(status == 201, answer.get("message"))
    wrong = []
    for path, value in DEFAULTS.items():
        try:
            found = value_at(answer, path)
        except KeyError:
            found = "absent"
        if found != value:
            wrong.append(f"{'.'.join(path)}: {found!r}, not {value!r}")
    expect(not wrong, "\n".join(wrong))


def test_the_pod_template_is_kept(server):
    status, answer = server.try_create(changed(BASE, (at("worker", "template"), RICH_TEMPLATE)))
    expect(status == 201, answer.get("message"))
    found = value_at(answer, at("worker", "template"))
    expect(found == RICH_TEMPLATE, json.dumps(found))


def test_scale(server):
    server.create(ELASTIC_JOB, "scaled")
    server.patch("scaled", {"status": {"replicas": 2, "selector": "lockstep.dev/job=scaled"}}, "/status")
    scale = server.get("scaled/scale")
    expect(scale["spec"]["replicas"] == 2, f"the wanted number: {scale}")
    expect(scale["status"]["replicas"] == 2, f"the present number: {scale}")
    expect(scale["status"]["selector"] == "lockstep.dev/job=scaled", f"the selector: {scale}")
    status, text = server.kubectl("scale", "dtj/scaled", "--replicas=4")
    expect(status == 0, text)
    job = server.get("scaled")
    expect(job["spec"]["worker"]["replicas"] == 4, f"scale does not reach worker.replicas: {job['spec']['worker']}")
    status, text = server.kubectl("scale", "dtj/scaled", "--replicas=5")
    expect(status != 0 and "worker.replicas must be within" in text, f"scale beyond maxReplicas: {text}")


def test_status(server):
    server.create(BASE, "status")
    condition = {"type": "Complete", "status": "True", "reason": "TrainingDone", "message": "",
                 "lastTransitionTime": "2026-01-02T03:04:05Z"}
    status_now = {
        "state": "Complete", "readyReplicas": 2, "attempt": 1, "conditions": [condition],
        "rendezvous": {"round": 7, "worldSize": 2}, "goodput": {"ratio": 0.93},
        "progress": {"step": 100, "loss": 0.25}, "checkpoint": {"step": 100, "time": "2026-01-02T03:04:05Z"},
    }
    status, answer = server.patch("status", {"status": status_now, "spec": {"suspend": True}}, "/status")
    expect(status == 200 and answer["status"] == status_now, f"status is not written: {answer}")
    expect(answer["spec"]["suspend"] is False, f"the spec is written through status: {answer['spec']}")
    status, answer = server.patch("status", {"status": {"state": "Failed"}})
    expect(answer["status"]["state"] == "Complete", f"status is written through the object: {answer}")
    status, answer = server.patch("status", {"status": {"conditions": [condition, condition]}}, "/status")
    expect(status == 422 and "Duplicate value" in answer["message"], f"two conditions of a type: {answer}")
    status, text = server.kubectl("wait", "dtj/status", "--for=condition=Complete", f"--timeout={LIMIT}s")
    expect(status == 0, text)
    expect_columns(server)


def expect_columns(server):
    status, text = server.kubectl("get", "dtj", "status", "-o", "wide")
    header, row = (text.splitlines() + ["", ""])[:2]
    columns = "NAME STATE READY WORLD STEP LOSS RESTARTS AGE ROUND GOODPUT LAST-CKPT QUEUE"
    expect(header.split() == columns.split(), text)
    expect(row.split()[:7] == ["status", "Complete", "2", "2", "100", "0.25", "1"], text)
    status, text = server.kubectl("get", "dtj")
    expect(text.splitlines()[0].split() == columns.split()[:8], f"narrow columns: {text}")
    for category in ("all", "training"):
        status, text = server.kubectl("get", category, "-o", "name")
        expect("distributedtrainingjob.lockstep.dev/status" in text, f"category {category}: {text}")


def test_explain(server):
    status, text = server.kubectl("explain", "dtj.spec.training.optimizer.learningRate")
    expect("Learning rate after the warm-up." in text, text)


@pytest.mark.parametrize("example", sorted((ROOT / "crds" / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_example(server, example):
    status, text = server.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(example))
    expect(status == 0, text)


def test_generated_parts(server):
    version = api().request("GET", "/version")[1]
    made_for = re.search(r"Kubernetes (\d+)\.(\d+)", CRD.read_text())
    if made_for and (version["major"], version["minor"].rstrip("+")) != made_for.groups():
        pytest.skip(f"the CRD was made for Kubernetes {'.'.join(made_for.groups())}, this is {version['gitVersion']}")
    result = subprocess.run(
        [str(ROOT / "crds" / "generate.py"), "--check", "--kubectl", KUBECTL],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT,
    )
    expect(result.returncode == 0, result.stdout)


def test_each_rule_has_refused_something(server):
    """In the cases above, which must have run: of the served definition, so that no rule is added without its cases."""
    versions = api().request("GET", DEFINITION)[1]["spec"]["versions"]
    messages = [rule.get("message") or rule["messageExpression"].split("'")[1]
                for rule in rules_of(versions[0]["schema"]["openAPIV3Schema"])]
    unseen = [message for message in messages if not any(message in said for said in server.said)]
    expect(not unseen, "no case for: " + "; ".join(unseen))
