#include "runtime/tools/convert/field_table.h"

#include <algorithm>
#include <array>

namespace lockstep::convert {
namespace {

using enum Fate;

constexpr std::array kJobFields = {
    Field{"metadata.name", kBecomes, "metadata.name", "at most 50 characters: pod names derive from it"},
    Field{"metadata.generateName", kLost, "", "write metadata.name: pods and checkpoints are found by it"},
    Field{"metadata.namespace", kBecomes, "metadata.namespace", ""},
    Field{"metadata.labels", kBecomes, "metadata.labels", ""},
    Field{"metadata.labels[kueue.x-k8s.io/queue-name]", kBecomes, "spec.schedulingPolicy.queueName",
          "the same if it is an annotation"},
    Field{"metadata.annotations", kBecomes, "metadata.annotations", "without kubectl's copy of the manifest"},
    Field{"metadata.ownerReferences", kNotNeeded, "", "what owned the PyTorchJob does not own the new job"},
    Field{"metadata.finalizers", kNotNeeded, "", "no controller would remove them from the new job"},
    Field{"spec.nprocPerNode", kBecomes, "spec.nprocPerNode",
          "1 if the command is not torchrun: Kubeflow starts it once in each pod"},
    Field{"spec.pytorchReplicaSpecs.Master.replicas", kBecomes, "spec.worker.replicas",
          "the sum of both: rank 0 is one of the workers"},
    Field{"spec.pytorchReplicaSpecs.Worker.replicas", kBecomes, "spec.worker.replicas", ""},
    Field{"spec.pytorchReplicaSpecs.Master.template", kBecomes, "spec.worker.template",
          "must equal the Worker's, which is used"},
    Field{"spec.pytorchReplicaSpecs.Worker.template", kBecomes, "spec.worker.template", "see below"},
    Field{"spec.pytorchReplicaSpecs.Master.restartPolicy", kBecomes, "spec.failurePolicy",
          "must equal the Worker's, which is used"},
    Field{"spec.pytorchReplicaSpecs.Worker.restartPolicy", kBecomes, "spec.failurePolicy",
          "Never: maxRestarts 0; ExitCode: rules that fail the job for 1 to 127; OnFailure, Always: restarts "
          "without a limit, as in Kubeflow, unless backoffLimit sets one"},
    Field{"spec.elasticPolicy.minReplicas", kBecomes, "spec.elasticPolicy.minReplicas", ""},
    Field{"spec.elasticPolicy.maxReplicas", kBecomes, "spec.elasticPolicy.maxReplicas", ""},
    Field{"spec.elasticPolicy.maxRestarts", kBecomes, "spec.failurePolicy.inPlaceLimit",
          "restarts of processes in pods that keep running; Lockstep counts those without progress between "
          "them"},
    Field{"spec.elasticPolicy.metrics", kBecomes, "spec.elasticPolicy.metrics", ""},
    Field{"spec.elasticPolicy.nProcPerNode", kBecomes, "spec.nprocPerNode", "if spec.nprocPerNode is absent"},
    Field{"spec.elasticPolicy.rdzvBackend", kNotNeeded, "",
          "the operator hosts the rendezvous; no c10d store or etcd is needed for it"},
    Field{"spec.elasticPolicy.rdzvHost", kNotNeeded, "", "the operator hosts the rendezvous"},
    Field{"spec.elasticPolicy.rdzvPort", kNotNeeded, "", "each round has a free port of its own"},
    Field{"spec.elasticPolicy.rdzvId", kNotNeeded, "", "the job's uid identifies its rendezvous"},
    Field{"spec.elasticPolicy.rdzvConf", kBecomes, "spec.rendezvous", "see below"},
    Field{"spec.elasticPolicy.standalone", kNotNeeded, "", "a job of one pod needs no other rendezvous"},
    Field{"spec.runPolicy.cleanPodPolicy", kBecomes, "spec.runPolicy.cleanPodPolicy",
          "None if it is absent, as in Kubeflow"},
    Field{"spec.runPolicy.ttlSecondsAfterFinished", kBecomes, "spec.runPolicy.ttlSecondsAfterFinished", ""},
    Field{"spec.runPolicy.activeDeadlineSeconds", kBecomes, "spec.runPolicy.activeDeadlineSeconds", ""},
    Field{"spec.runPolicy.backoffLimit", kBecomes, "spec.failurePolicy.maxRestarts",
          "restarts of processes in pods that keep running are not counted"},
    Field{"spec.runPolicy.suspend", kBecomes, "spec.suspend", ""},
    Field{"spec.runPolicy.managedBy", kLost, "",
          "MultiKueue does not support DistributedTrainingJob, so no cluster would run it; leave it out"},
    Field{"spec.runPolicy.schedulingPolicy.minAvailable", kBecomes, "spec.schedulingPolicy.gang.minCount",
          ""},
    Field{"spec.runPolicy.schedulingPolicy.queue", kLost, "",
          "Lockstep queues by Kueue, not by queues of Volcano; make a LocalQueue and name it by "
          "spec.schedulingPolicy.queueName"},
    Field{"spec.runPolicy.schedulingPolicy.minResources", kNotNeeded, "",
          "schedulers add up what the pods ask for"},
    Field{"spec.runPolicy.schedulingPolicy.priorityClass", kBecomes,
          "spec.schedulingPolicy.priorityClassName", "that of the template takes precedence"},
    Field{"spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds", kBecomes,
          "spec.schedulingPolicy.gang.scheduleTimeoutSeconds", ""},
};

constexpr std::array kTemplateFields = {
    Field{"spec.containers[pytorch].name", kBecomes, "spec.containers[trainer].name",
          "is kept by worker.containerName if something else refers to it"},
    Field{"spec.containers[pytorch].command", kBecomes, "spec.containers[trainer].command",
          "torchrun and its flags are removed, so that the plain script remains. Required: Lockstep cannot "
          "know the entry point of an image"},
    Field{"spec.containers[pytorch].args", kBecomes, "spec.containers[trainer].args",
          "torchrun and its flags are removed"},
    Field{
        "spec.containers[pytorch].env", kBecomes, "spec.containers[trainer].env",
        "MASTER_ADDR, RANK and the like are set for each rank, whatever is set here; PYTHONUNBUFFERED is set "
        "if it is absent, as by Kubeflow"},
    Field{"spec.containers[pytorch].ports[pytorchjob-port]", kNotNeeded, "",
          "each round has a free port of its own"},
    Field{"spec.restartPolicy", kNotNeeded, "", "failurePolicy decides what is restarted"},
    Field{"spec.hostname", kNotNeeded, "", "each pod has its own name as hostname"},
    Field{"spec.subdomain", kNotNeeded, "", "it is the job's Service"},
    Field{"spec.nodeName", kLost, "",
          "it would be the same in every pod; use nodeSelector with kubernetes.io/hostname"},
    Field{"spec.hostNetwork", kBecomes, "spec.network.hostNetwork",
          "with networkPolicy None, as no policy reaches such pods"},
    Field{"spec.serviceAccountName", kBecomes, "spec.serviceAccountName",
          "with automountServiceAccountToken true; in Lockstep it is false if absent"},
};

constexpr std::string_view kLogs = "kubectl logs has all ranks, each line with its rank";
constexpr std::string_view kAddress = "Lockstep assigns ranks, address and port for each round";

constexpr std::array kLaunchFlags = {
    Field{"--nnodes", kBecomes, "spec.worker.replicas",
          "a number must be that of the pods; MIN:MAX becomes spec.elasticPolicy if there is none"},
    Field{"--nproc_per_node", kBecomes, "spec.nprocPerNode", "takes precedence over the fields"},
    Field{"--max_restarts", kBecomes, "spec.failurePolicy.inPlaceLimit",
          "takes precedence over spec.elasticPolicy.maxRestarts"},
    Field{"--rdzv_conf", kBecomes, "spec.rendezvous", "see below"},
    Field{"--module", kBecomes, "command", "python3 -m MODULE"},
    Field{"--no_python", kBecomes, "command", "the program itself"},
    Field{"--rdzv_backend", kNotNeeded, "", "the operator hosts the rendezvous"},
    Field{"--rdzv_endpoint", kNotNeeded, "", "the operator hosts the rendezvous"},
    Field{"--rdzv_id", kNotNeeded, "", "the job's uid identifies its rendezvous"},
    Field{"--standalone", kNotNeeded, "", "a job of one pod needs no other rendezvous"},
    Field{"--node_rank", kNotNeeded, "", kAddress},
    Field{"--master_addr", kNotNeeded, "", kAddress},
    Field{"--master_port", kNotNeeded, "", kAddress},
    Field{"--local_addr", kNotNeeded, "", kAddress},
    Field{"--monitor_interval", kNotNeeded, "", "the end of a process is noticed at once"},
    Field{"--start_method", kNotNeeded, "", "each rank is a process of its own"},
    Field{"--role", kNotNeeded, "", "all ranks have one role; ROLE_NAME is default"},
    Field{"--log_dir", kNotNeeded, "", kLogs},
    Field{"--redirects", kNotNeeded, "", kLogs},
    Field{"--tee", kNotNeeded, "", kLogs},
    Field{"--local_ranks_filter", kNotNeeded, "", kLogs},
    Field{"--use_env", kNotNeeded, "", "LOCAL_RANK is in the environment"},
    Field{"--run_path", kLost, "", "write a command that runs the script in the way it needs"},
    Field{"--virtual_local_rank", kLost, "", "every rank sees all GPUs of its pod, by LOCAL_RANK"},
};

constexpr std::array kRendezvousKeys = {
    Field{"join_timeout", kBecomes, "spec.rendezvous.joinTimeoutSeconds",
          "counts only while all expected pods run, not while one waits for a node, quota or image"},
    Field{"last_call_timeout", kBecomes, "spec.rendezvous.lastCallSeconds", ""},
    Field{"keep_alive_interval", kBecomes, "spec.rendezvous.heartbeatIntervalSeconds", ""},
    Field{"keep_alive_max_attempt", kBecomes, "spec.rendezvous.heartbeatTimeoutSeconds",
          "times keep_alive_interval (5 in torchrun if it is absent)"},
    Field{"timeout", kNotNeeded, "", "requests to the rendezvous are repeated until they arrive"},
    Field{"read_timeout", kNotNeeded, "", "requests to the rendezvous are repeated until they arrive"},
    Field{"close_timeout", kNotNeeded, "", "a round is closed at once"},
    Field{"is_host", kNotNeeded, "", "the operator hosts the rendezvous"},
    Field{"store_type", kNotNeeded, "", "the operator hosts the rendezvous"},
};

}  // namespace

std::span<const Field> JobFields() { return kJobFields; }
std::span<const Field> TemplateFields() { return kTemplateFields; }
std::span<const Field> LaunchFlags() { return kLaunchFlags; }
std::span<const Field> RendezvousKeys() { return kRendezvousKeys; }

const Field* FindField(std::span<const Field> fields, std::string_view theirs) {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.theirs == theirs; });
  return found == fields.end() ? nullptr : &*found;
}

}  // namespace lockstep::convert
