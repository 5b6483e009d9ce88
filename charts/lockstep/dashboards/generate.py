#!/usr/bin/env python3
"""Writes the dashboards of this folder: training-job.json, fleet.json, operator.json. They need the recording rules of ../recording.yaml.

A panel is one call here and forty lines of JSON there; ids, places on the grid and the data source come by themselves.

    charts/lockstep/dashboards/generate.py            writes the files
    charts/lockstep/dashboards/generate.py --check    writes nothing; exit status 1 if a file would change
"""
import itertools
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
GRID_WIDTH, HEIGHT, STAT_HEIGHT = 24, 8, 4

JOB = 'namespace="$namespace",job_name="$job_name"'
JOBS = 'namespace=~"$namespace"'
BY_JOB = "by (namespace, job_name)"
BY_RANK = "by (replica, local_rank)"
# A panel by rank or by job stays readable with a thousand of them.
SHOWN = 20
# From ../recording.yaml.
STEP_RATE = "namespace_job_name:lockstep_train_steps:rate2m"
SAMPLE_RATE = "namespace_job_name:lockstep_train_samples:rate2m"
TOKEN_RATE = "namespace_job_name:lockstep_train_tokens:rate2m"
FLOPS_RATE = "namespace_job_name:lockstep_model_flops:rate2m"
PHASE_RATE = "namespace_job_name_phase:lockstep_train_phase_seconds:rate2m"
# controller-runtime's names are in use by every operator of a cluster: these labels are ours.
CONTROLLER = 'controller="distributedtrainingjob",namespace=~"$namespace"'
QUEUE = 'name="distributedtrainingjob",namespace=~"$namespace"'
# … and of series without such a label, those of a process that says it is ours.
OF_OPERATOR = 'and on (instance) lockstep_build_info{program="lockstep-operator",namespace=~"$namespace"}'


def query(expression, legend="", **options):
    return {"expr": expression, "legendFormat": legend, **options}


def row(title, *hidden):
    """A heading for the panels after it, or, with panels of its own, one that is closed until somebody opens it."""
    return {"type": "row", "title": title, "collapsed": bool(hidden), "panels": list(hidden)}


def panel(kind, title, unit, description, *queries, width, height=HEIGHT, custom=None, options=None, **defaults):
    targets = [{"refId": chr(ord("A") + i), "datasource": DATA_SOURCE, **q} for i, q in enumerate(queries)]
    return {"type": kind, "title": title, "description": description, "datasource": DATA_SOURCE, "targets": targets,
            "gridPos": {"w": width, "h": height}, "options": options or {},
            "fieldConfig": {"defaults": {"unit": unit, **({"custom": custom} if custom else {}), **defaults}, "overrides": []}}


# A stack has no lines: one of a series at zero would lie on top of all others.
LINES = {"fillOpacity": 0, "lineWidth": 1, "showPoints": "auto", "stacking": {"mode": "none"}}
STACK = {"fillOpacity": 60, "lineWidth": 0, "showPoints": "never", "stacking": {"mode": "normal"}}
BARS = {**STACK, "drawStyle": "bars", "fillOpacity": 90}


def graph(title, unit, description, *queries, width=8, looks=LINES, from_zero=True, up_to=None, paint=None, **defaults):
    """up_to: what the axis reaches at least. paint: {legend, or /pattern/ of legends: colour}; others get one from Grafana."""
    custom = {**looks, **({"axisSoftMin": 0} if from_zero else {}), **({"axisSoftMax": up_to} if up_to else {})}
    options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    result = panel("timeseries", title, unit, description, *queries, width=width, custom=custom, options=options, **defaults)
    result["fieldConfig"]["overrides"] = [painted(legend, colour) for legend, colour in (paint or {}).items()]
    return result


def painted(legend, colour):
    several = legend.startswith("/")
    return {"matcher": {"id": "byRegexp" if several else "byName", "options": legend},
            "properties": [{"id": "color", "value": {"mode": "shades" if several else "fixed", "fixedColor": colour}}]}


def counts(title, description, *queries, looks=LINES, **others):
    """A graph of whole numbers. Where all are 0, Grafana's axis would go to 100."""
    return graph(title, "none", description, *queries, looks=looks, up_to=1, decimals=0, **others)


def events(title, description, *queries, **others):
    """Bars of what happened in each interval."""
    return counts(title, description, *queries, looks=BARS, **others)


def stat(title, unit, description, expression, legend="", width=4, shows="auto", direction="auto", **defaults):
    options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value",
               "textMode": shows, "graphMode": "none", "orientation": direction}
    return panel("stat", title, unit, description, query(expression, legend), width=width, height=STAT_HEIGHT, options=options,
                 **{**PLAIN, **defaults})


def table(title, description, columns, labels, width=GRID_WIDTH):
    """columns: [(name, unit, expression, more)], joined by their labels; one row for each set of labels."""
    queries = [query(expression, name, instant=True, format="table") for name, _, expression, *_ in columns]
    # Grafana gives a column 150 pixels at least: too many for a dozen on a screen.
    result = panel("table", title, "none", description, *queries, width=width, custom={"minWidth": 100})
    values = {f"Value #{chr(ord('A') + i)}": name for i, (name, *_) in enumerate(columns)}
    result["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": {**labels, **values}}}]
    result["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": name},
         "properties": [{"id": "unit", "value": unit}, *({"id": key, "value": value} for more in mores for key, value in more.items())]}
        for name, unit, _, *mores in columns]
    return result


def colours(*steps):
    """Threshold colours: (from, colour), the first from minus infinity."""
    return {"thresholds": {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}}


# Without colours of ours Grafana paints every number from 80 on red, such as 100 ranks.
PLAIN = colours((None, "text"))
GOOD_IS_HIGH = colours((None, "red"), (0.5, "orange"), (0.8, "green"))
ZERO_IS_GOOD = colours((None, "green"), (1, "red"))
ONE_IS_GOOD = colours((None, "red"), (1, "green"))
YES_OR_NONE = {"mappings": [{"type": "value", "options": {"0": {"text": "none"}, "1": {"text": "yes"}}}]}
STATES = {"Created": "super-light-yellow", "Pending": "yellow", "Starting": "light-blue", "Running": "green", "Restarting": "orange",
          "Stalled": "dark-orange", "Suspended": "purple", "Complete": "blue", "Failed": "red"}
PHASES = {"forward": "light-blue", "backward": "blue", "optimizer": "purple", "data": "yellow", "reduce": "orange", "graph": "dark-blue", "sync": "red",
          "checkpoint": "green", "evaluate": "light-green", "script": "super-light-yellow"}
RECOVERY_LEVELS = {"Membership": "green", "Respawn": "yellow", "ReplacePod": "orange", "Checkpoint": "red"}
CAUSES = {"UserError": "red", "Infrastructure": "orange", "Preemption": "purple", "Hang": "dark-orange", "Straggler": "yellow",
          "Rendezvous": "blue"}
LOST = {"scheduling": "purple", "startup": "blue", "rendezvous": "yellow", "checkpoint": "green", "recompute": "red", "stalled": "orange"}
METHODS = {"GET": "blue", "WATCH": "light-blue", "PATCH": "green", "PUT": "light-green", "POST": "yellow", "DELETE": "purple"}
CODES = {"/^2/": "green", "/^[13]/": "blue", "/^4/": "orange", "/^5|error/": "red"}


def variable(name, label, expression, several):
    return {"type": "query", "name": name, "label": label, "datasource": DATA_SOURCE, "definition": expression,
            "query": {"query": expression, "refId": name}, "refresh": 2, "sort": 1, "multi": several, "includeAll": several,
            **({"allValue": ".+"} if several else {})}


def annotation(name, colour, expression, title, text="{{job_name}}", enabled=True):
    """One line for each time at which the expression has a value. Without a step of ours it would come up to a minute late."""
    return {"name": name, "enable": enabled, "hide": False, "iconColor": colour, "datasource": DATA_SOURCE,
            "expr": expression, "titleFormat": title, "textFormat": text, "step": "10s"}


def link(title, uid):
    return {"type": "link", "title": title, "url": f"/d/{uid}", "keepTime": True, "includeVars": False, "icon": "dashboard"}


def placed(panels, y=0, numbers=None):
    """Numbers the panels and puts them from left to right; a row, or one that does not fit, begins a new line. Lines are filled.
    The panels of a closed row get the places that they have once it is open."""
    numbers = numbers or itertools.count(1)
    lines = [[]]
    for one in panels:
        one = {**one, "id": next(numbers), "gridPos": {"w": GRID_WIDTH, "h": 1, **one.get("gridPos", {})}}
        if sum(other["gridPos"]["w"] for other in lines[-1]) + one["gridPos"]["w"] > GRID_WIDTH:
            lines.append([])
        lines[-1].append(one)
    for line in lines:
        missing = GRID_WIDTH - sum(one["gridPos"]["w"] for one in line)
        x = 0
        for i, one in enumerate(line):
            width = one["gridPos"]["w"] + missing // len(line) + (i < missing % len(line))
            one["gridPos"] = {"x": x, "y": y, "w": width, "h": one["gridPos"]["h"]}
            if one.get("panels"):
                one["panels"] = list(placed(one["panels"], y + 1, numbers))
            yield one
            x += width
        y += max(one["gridPos"]["h"] for one in line)


def dashboard(uid, title, description, variables, annotations, links, panels):
    source = {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1}
    return {"uid": uid, "title": title, "description": description, "tags": ["lockstep"], "schemaVersion": 39, "id": None,
            "editable": False, "graphTooltip": 1, "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "timezone": "",
            "templating": {"list": [source, *variables]}, "annotations": {"list": annotations}, "links": links,
            "panels": list(placed(panels))}


def rate(metric, labels=JOB):
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def per_step(phases):
    """Seconds of a step that each rank spends in the phases."""
    return (f'sum {BY_RANK} (rate(lockstep_train_phase_seconds_total{{{JOB},phase=~"{phases}"}}[$__rate_interval]))'
            f" / sum {BY_RANK} ({rate('lockstep_train_steps_total')} > 0)")


def of_rank(metric):
    """The newest value of each rank."""
    return f"max {BY_RANK} ({metric}{{{JOB}}})"


def with_global_rank(expression):
    """Adds the label rank. For a moment after a pod was replaced, both the old and the new one have said which rank they are."""
    newest_info = f"topk {BY_RANK} (1, lockstep_rank_info{{{JOB}}})"
    return f"({expression}) * on (replica, local_rank) group_left (rank) {newest_info}"


def shown(expression, lowest=False):
    return f"{'bottomk' if lowest else 'topk'}({SHOWN}, {expression})"


def ranks_query(expression, legend="", lowest=False):
    return query(shown(with_global_rank(expression), lowest), "rank {{rank}} ({{replica}}.{{local_rank}})" + legend)


def by_rank(title, unit, description, expression, lowest=False, **others):
    """A graph of the ranks with the highest values, or with the lowest, where these are the ones to look at."""
    return graph(f"{title}, by rank", unit, f"{description} The {SHOWN} {'lowest' if lowest else 'highest'}.",
                 ranks_query(expression, lowest=lowest), **others)


def quantile(share, metric):
    return f"histogram_quantile({share}, sum by (le) ({rate(metric + '_bucket')}))"


def newest(metric, *labels):
    """A fact of the job that every pod, or every operator that was leader in the time shown, exports."""
    return f"max({metric}{{{','.join((JOB, *labels))}}})"


def by_size(metric):
    """For each number of ranks that was measured."""
    return f"max by (world_size) (lockstep_job_scaling_{metric}{{{JOB}}})"


def by_gpu(metric):
    return ranks_query(f"max by (replica, local_rank, gpu) ({metric}{{{JOB}}})", ", GPU {{gpu}}")


def changes(metric, labels=JOB):
    """A value in the one step after each change."""
    return f"max {BY_JOB} ({metric}{{{labels}}}) != max {BY_JOB} ({metric}{{{labels}}} offset $__interval)"


def happened(metric, labels=JOB, interval="$__rate_interval"):
    """Events of each series. Where an interval has four samples, increase() makes 1.33 of one, and of two 2.67; never less than one of one."""
    return f"floor(increase({metric}{{{labels}}}[{interval}]) + 0.01)"


STEPS_LEFT = f"({newest('lockstep_train_planned_steps')} - {newest('lockstep_train_step')})"

TRAINING_JOB = dashboard(
    "lockstep-training-job", "Lockstep / Training job", "One DistributedTrainingJob: how far, how fast, and what it lost.",
    [variable("namespace", "Namespace", "label_values(lockstep_job_info, namespace)", several=False),
     variable("job_name", "Job", 'label_values(lockstep_job_info{namespace="$namespace"}, job_name)', several=False)],
    [annotation("Restarts", "red", changes("lockstep_job_restarts_total"), "Restart"),
     annotation("Rounds", "orange", changes("lockstep_job_round"), "New round"),
     annotation("Checkpoints", "blue", changes("lockstep_checkpoint_step"), "Checkpoint", enabled=False)],
    [link("Fleet", "lockstep-fleet"), link("Operator", "lockstep-operator")],
    [row("Overview"),
     stat("Progress", "percentunit", "Finished steps, of those that the job will take.",
          f"{newest('lockstep_train_step')} / ({newest('lockstep_train_planned_steps')} > 0)"),
     stat("Time left", "s", "Steps left, at the rate of the last two minutes. Empty while no step is made.",
          f"{STEPS_LEFT} / ({newest(STEP_RATE)} > 0)"),
     stat("Ranks", "none", "Ranks in the current round; 0 between rounds.", newest("lockstep_job_world_size")),
     stat("Samples per second", "short", "Of all ranks together, in the last two minutes.", newest(SAMPLE_RATE)),
     stat("Goodput", "percentunit", "Productive seconds as a share of all seconds since the job was first admitted.",
          newest("lockstep_job_goodput_ratio"), **GOOD_IS_HIGH),
     stat("Recoveries", "none", "Failures that were repaired since this operator began to lead, whether or not they were charged.",
          f"sum(max by (level) (lockstep_job_recoveries_total{{{JOB}}}))"),
     stat("Charged", "none", "Restarts that count towards failurePolicy.maxRestarts, since the job was made.",
          newest("lockstep_job_restarts_total"), width=3, **ZERO_IS_GOOD),
     stat("Step", "none", "The newest finished step, as the operator knows it: at most ten seconds old.", newest("lockstep_job_step"),
          width=3),
     stat("Epoch", "none", "Passes over the data, fraction included.", newest("lockstep_train_epoch"), width=3, decimals=2),
     stat("Round", "none", "Number of the newest round. Each failure, and each change of size, makes a new one.",
          newest("lockstep_job_round"), width=3),
     stat("Checkpoint age", "s", "Of the newest one: what would be lost if all pods died now. Empty before the first checkpoint.",
          f"time() - {newest('lockstep_checkpoint_last_success_timestamp_seconds')}"),
     stat("Model", "none", "The model by its name in spec.training, or program.",
          f'max by (model) (label_replace(lockstep_job_info{{{JOB}}}, "model", "program", "model", ""))', "{{model}}", shows="name"),
     stat("Straggler", "none", "Whether a rank computes slower than the others; only with spec.healthPolicy.straggler is it looked for.",
          newest("lockstep_job_straggler"), **YES_OR_NONE, **ZERO_IS_GOOD),

     row("Learning"),
     graph("Loss", "short", "Mean training loss over the global batch of the last step.",
           query(f"avg(lockstep_train_loss{{{JOB}}})", "training"), from_zero=False),
     graph("Evaluation loss", "short", "Mean loss of the newest evaluation. Empty from a change of rank 0 to the next evaluation.",
           query(newest("lockstep_evaluation_loss"), "evaluation"), from_zero=False),
     graph("Evaluation accuracy", "percentunit",
           "Accuracy of the newest evaluation. Empty from a change of rank 0 to the next evaluation.",
           query(newest("lockstep_evaluation_accuracy_ratio"), "evaluation"), from_zero=False),
     graph("Gradient norm", "short", "Global norm before clipping. A leap often comes before a loss that is not finite.",
           query(f"max(lockstep_train_gradient_norm{{{JOB}}})", "norm"), width=6),
     graph("Learning rate", "sci", "Learning rate of the last step, after warm-up and schedule.",
           query(f"max(lockstep_train_learning_rate{{{JOB}}})", "rate"), width=6),
     events("Skipped and repeated steps",
           "Skipped: loss or gradient were not finite, nothing changed. Repeated: aborted by a failure and made again. In the interval, the "
           "rank with most.",
           query(f"max({happened('lockstep_train_skipped_steps_total')})", "skipped"),
           query(f"max({happened('lockstep_train_repeated_steps_total')})", "repeated"),
           width=6, paint={"skipped": "red", "repeated": "orange"}),
     counts("Corrupt records",
           "Times that a sample had no part in its step or evaluation because its record is corrupt (onCorruptRecord: Skip); since the pods "
           "began, all ranks together. The ranks' logs name them.",
           query(f"sum(lockstep_train_corrupt_records_total{{{JOB}}})", "skipped"), width=6),

     row("Throughput"),
     graph("Steps per second", "short", "Optimizer steps that the ranks commit; equal on all while a round is whole.",
           query(f"max({rate('lockstep_train_steps_total')})", "steps")),
     graph("Samples and tokens per second", "short", "Of all ranks together, over two minutes; tokens for models of text only.",
           query(newest(SAMPLE_RATE), "samples"), query(newest(TOKEN_RATE), "tokens")),
     graph("Seconds per step", "s", "From one committed step to the next, on rank 0: the median, and the value that 99 of 100 steps are below.",
          query(quantile(0.5, "lockstep_train_step_seconds"), "median"), query(quantile(0.99, "lockstep_train_step_seconds"), "99th percentile")),
    graph("Model operations per second", "flops",
           "What the model takes at this speed, forward and backward, of all ranks together; for models that know it: mlp, cnn, resnet18, "
           "resnet50, gpt.",
           query(newest(FLOPS_RATE), "model")),
     graph("Where a rank's time goes", "percentunit",
           "Share of a second in each phase, mean over ranks. What is missing to 100 % is between phases: rounds, starting, waiting.",
           query(f"max by (phase) ({PHASE_RATE}{{{JOB}}})", "{{phase}}"), looks=STACK, up_to=1, paint=PHASES),
     table("Speed by number of ranks",
           "How fast the job trained with each number of ranks that it had for long enough, slowest first. Efficiency: samples per second and "
           "rank, compared with the smallest number. `kubectl lockstep scaling` says what limits the larger ones.",
           [("Samples per second", "short", f"sort({by_size('samples_per_second')})"), ("Efficiency", "percentunit", by_size("efficiency_ratio"))],
           {"world_size": "Ranks"}, width=8),

     row("Ranks and communication",
         by_rank("Own work per step", "s",
                 "Seconds in data, forward, backward and optimizer. A rank above the others is the straggler: they wait for it in the next "
                 "panel.",
                 per_step("data|forward|backward|graph|optimizer"), width=6),
         by_rank("Waiting for the reduction", "s",
                 "Seconds of a step in the reduction that no computation hides: the network, and waiting for slower ranks. The straggler "
                 "waits least.",
                 per_step("reduce"), lowest=True, width=6),
         by_rank("Waiting for data", "s", "Seconds of a step until the next batch was there.", per_step("data"), width=6),
         by_rank("Given to other ranks", "Bps",
                 "Bytes of the tensors that a rank gives to collectives and messages. What its network carries for them depends on the "
                 "collective: a ring sends almost twice as many.",
                 f"sum {BY_RANK} ({rate('lockstep_train_communication_bytes_total')})", width=6),
         by_rank("Memory", "bytes", "Of the host, that the rank's largest process holds.", of_rank("lockstep_rank_memory_bytes"), width=6),
        counts("Pods", "Worker pods that have not ended, those that are ready, that are in the round and that wait for the next one, and the ranks "
               "that train.",
               query(newest("lockstep_job_replicas"), "pods"), query(newest("lockstep_job_ready_replicas"), "ready"),
               query(newest("lockstep_job_members", 'state="round"'), "in the round"),
               query(newest("lockstep_job_members", 'state="waiting"'), "waiting for a round"),
               query(newest("lockstep_job_world_size"), "ranks"), width=6),
         by_rank("Steps held", "short", "A rank that stays behind others has left the round or hangs.", of_rank("lockstep_train_step"),
                 lowest=True, width=6),
         events("Hangs", f"Hangs that were detected in the interval. The {SHOWN} ranks with most.",
                ranks_query(f"sum {BY_RANK} ({happened('lockstep_rank_hangs_total')})"),
                query(f"vector(0) unless on () lockstep_rank_hangs_total{{{JOB}}}", "none so far"), width=6)),

     row("GPUs",
         graph("GPU utilisation", "percentunit",
               "Share of time in which a kernel ran, by rank and its GPU; how much of the GPU the kernel used it does not say. Low with high "
               "waiting for data: the data is the limit.",
               by_gpu("lockstep_gpu_utilization_ratio"), min=0, max=1),
         graph("Model FLOPs utilization (MFU)", "percentunit",
               "What the model takes at this speed, of the most that the GPUs could do by their datasheet. Only with bf16 or fp16, and on GPUs "
               "whose peak is known: A100, H100, H200.",
               query(f"avg(lockstep_mfu_ratio{{{JOB}}})", "MFU")),
         graph("GPU memory in use", "bytes", "The driver's own part included; and what the largest GPU has.",
               by_gpu("lockstep_gpu_memory_used_bytes"), query(newest("lockstep_gpu_memory_total_bytes"), "there is")),
         counts("GPU errors since the pods began",
                "XID: critical errors by the driver's number for them; ECC: errors in memory that could not be corrected. Any is worth a look at "
                "the runbook of LockstepGpuXidError.",
                query(shown(f"max by (replica, gpu, xid) (lockstep_gpu_xid_errors_total{{{JOB}}})"),
                      "replica {{replica}}, GPU {{gpu}}, XID {{xid}}"),
                query(shown(f"max by (replica, gpu) (lockstep_gpu_ecc_errors_total{{{JOB}}})"),
                      "replica {{replica}}, GPU {{gpu}}, ECC")),
         graph("GPU power", "watt", "A GPU below the others at the same work is throttled, or waits.",
               by_gpu("lockstep_gpu_power_watts")),
         graph("GPU temperature", "celsius", "A GPU above the others is cooled badly, and slows down at its limit.",
               by_gpu("lockstep_gpu_temperature_celsius"))),

     row("Checkpoints",
         events("Stored and failed", "Checkpoints in the interval. Any failure is worth a look at the worker's log.",
                query(f"sum({happened('lockstep_checkpoint_saves_total')})", "stored"),
                query(f"sum({happened('lockstep_checkpoint_failures_total')})", "failed"), paint={"stored": "green", "failed": "red"}),
         graph("Duration", "s", "From the snapshot to the manifest, newest checkpoint. Training continues meanwhile, except for the stall.",
               query(newest("lockstep_checkpoint_last_duration_seconds"), "duration")),
         graph("Stall", "percentunit", "Share of time that training waited for checkpoints.",
               query(f"sum({rate('lockstep_checkpoint_stall_seconds_total')})", "stall")),
         graph("Bytes written", "Bps", "Bytes of checkpoints each second.",
               query(f"sum({rate('lockstep_checkpoint_bytes_total')})", "written")),
         graph("Steps since the newest checkpoint", "short", "Steps that would be made again if all pods died now.",
               # Pods that are new have stored none yet: the operator knows.
               query(f"{newest('lockstep_train_step')} - ({newest('lockstep_checkpoint_step')} or {newest('lockstep_job_checkpoint_step')})",
                     "steps")),
         by_rank("Memory of checkpoints", "bytes",
                 "Of the host, that checkpoints of a script with the Python package take, in addition to the memory of its process.",
                 of_rank("lockstep_rank_checkpoint_memory_bytes"))),

     row("Failures"),
     events("Recoveries by level",
            "Failures repaired in the interval. Membership: the others continued; Respawn: a process was started in place; ReplacePod; "
            "Checkpoint: no rank held the state.",
            query(f"max by (level) ({happened('lockstep_job_recoveries_total')})", "{{level}}"), paint=RECOVERY_LEVELS),
     events("Charged restarts", "Restarts in the interval that count towards failurePolicy.maxRestarts.",
            query(f"max({happened('lockstep_job_restarts_total')})", "restarts"), paint={"restarts": "red"}),
     events("Rounds entered, by where the state came from",
            "In the interval: kept (the rank's own), peer (copied from another rank), checkpoint, fresh (from nothing).",
            query(f"sum by (state_from) ({happened('lockstep_rendezvous_rounds_total')})", "{{state_from}}"),
            paint={"kept": "green", "peer": "blue", "checkpoint": "orange", "fresh": "purple"}),
     counts("Newest round, by pod", f"A pod below the others has not entered the newest round. The {SHOWN} lowest.",
           query(shown(f"max by (pod) (lockstep_rendezvous_round{{{JOB}}})", lowest=True), "{{pod}}")),
     by_rank("Time to equal state", "s", "From the assignment of a rank to equal state on all ranks, newest round.",
             of_rank("lockstep_sync_last_duration_seconds")),
     events("Started rank processes",
            f"In the interval. Above the pods' own start: processes that were started in place. The {SHOWN} ranks with most.",
            ranks_query(f"sum {BY_RANK} ({happened('lockstep_rank_starts_total')})")),
     graph("Goodput so far", "percentunit", "Productive seconds as a share of all seconds since the job was first admitted.",
           query(newest("lockstep_job_goodput_ratio"), "goodput"), min=0, max=1),
     graph("Time lost, by reason", "s", "Of the time since the job was first admitted, what was not spent on steps that lasted.",
           query(f"max by (reason) (lockstep_job_lost_seconds_total{{{JOB}}})", "{{reason}}"), width=16, looks=STACK, paint=LOST)])


def of_each_job(metric, *more):
    return f"max {BY_JOB} ({metric}{{{','.join((JOBS, *more))}}})"


def jobs_query(expression, lowest=False):
    return query(shown(expression, lowest), "{{namespace}}/{{job_name}}")


def over_jobs(function, metric):
    return f"{function}({of_each_job(metric)})"


def gpus_of_each_job(state):
    return of_each_job("lockstep_job_gpus", f'state="{state}"')


def quantiles_shown(metric):
    return [query(f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket[$__range])))", name)
            for q, name in ((0.5, "median"), (0.95, "95 %"))]


FLEET = dashboard(
    "lockstep-fleet", "Lockstep / Fleet", "All jobs: their states, their pods, what failures cost.",
    [variable("namespace", "Namespace", "label_values(lockstep_job_info, namespace)", several=True)],
    [annotation("Restarts", "red", changes("lockstep_job_restarts_total", JOBS), "Restart")],
    [link("Training job", "lockstep-training-job"), link("Operator", "lockstep-operator")],
    [row("Overview"),
     stat("Jobs", "none", "Jobs that exist, whatever their state.", f"count(count {BY_JOB} (lockstep_job_info{{{JOBS}}}))", width=6),
     stat("Jobs that train", "none", "Jobs in the state Running.",
          f"count(max {BY_JOB} (lockstep_job_state{{{JOBS},state=\"Running\"}})) or vector(0)", width=6),
     stat("Ranks", "none", "Ranks that train.", over_jobs("sum", "lockstep_job_world_size"), width=6),
     stat("Pods not ready", "none", "Worker pods that are there but wait: for a node, an image, or their program.",
          f"{over_jobs('sum', 'lockstep_job_replicas')} - {over_jobs('sum', 'lockstep_job_ready_replicas')}", width=6),
     stat("GPUs held", "none", "Of worker pods that have a node and have not ended, whether or not they train.",
          f"sum({gpus_of_each_job('held')})", width=6),
     stat("GPUs waited for", "none", "Of worker pods that jobs want and that have no node, pods of jobs that queue among them.",
          f"sum({gpus_of_each_job('waiting')})", width=6),
     stat("Goodput", "percentunit", "Productive seconds of all jobs, of all since each was admitted.",
          f"{over_jobs('sum', 'lockstep_job_productive_seconds_total')} / (({over_jobs('sum', 'lockstep_job_productive_seconds_total')} + "
          f"sum(max by (namespace, job_name, reason) (lockstep_job_lost_seconds_total{{{JOBS}}}))) > 0)", width=6, **GOOD_IS_HIGH),
     stat("Restarts", "none", "Restarts in the time shown.",
          f"sum(max {BY_JOB} ({happened('lockstep_job_restarts_total', JOBS, '$__range')}))", width=6, **ZERO_IS_GOOD),

     row("Jobs"),
     counts("Jobs by state", "All namespaces.", query("sum by (state) (lockstep_jobs)", "{{state}}"), looks=STACK, paint=STATES, width=12),
     counts("Jobs by model", "The model by its name in spec.training.",
           query(f"count by (model) (max by (namespace, job_name, model) (lockstep_job_info{{{JOBS}}}))", "{{model}}"), looks=STACK,
            width=12),
     table("All jobs", "One row for each job that exists; the newest values.",
           [("Pods", "none", of_each_job("lockstep_job_replicas")), ("Ready", "none", of_each_job("lockstep_job_ready_replicas")),
            ("Ranks", "none", of_each_job("lockstep_job_world_size")), ("Round", "none", of_each_job("lockstep_job_round")),
            ("Step", "none", of_each_job("lockstep_job_step")), ("Restarts", "none", of_each_job("lockstep_job_restarts_total")),
            ("GPUs", "none", gpus_of_each_job("held")),
            ("GPUs waited for", "none", gpus_of_each_job("waiting")),
            ("Straggler", "none", of_each_job("lockstep_job_straggler"), {**YES_OR_NONE, "custom.align": "right"}),
            ("Goodput", "percentunit", of_each_job("lockstep_job_goodput_ratio"))],
           {"namespace": "Namespace", "job_name": "Job"}),
     counts("Ranks by job", f"Ranks in the current round. The {SHOWN} largest jobs.", jobs_query(of_each_job("lockstep_job_world_size")), looks=STACK, width=12),
     graph("Goodput by job", "percentunit", f"Productive seconds as a share of all seconds since the job was first admitted. The {SHOWN} lowest.",
           jobs_query(of_each_job("lockstep_job_goodput_ratio"), lowest=True), width=12, min=0, max=1),
     counts("GPUs held by namespace", "By worker pods that have a node and have not ended, whether or not they train.",
            query(f"sum by (namespace) ({gpus_of_each_job('held')})", "{{namespace}}"), looks=STACK, width=12),
     counts("GPUs waited for by job", f"For worker pods that have no node: none has so many left, or the job's queue has no quota. The {SHOWN} highest.",
            jobs_query(gpus_of_each_job("waiting")), looks=STACK, width=12),
     graph("Samples per second by job", "short", f"All ranks of a job together, over two minutes. The {SHOWN} highest.",
           jobs_query(of_each_job(SAMPLE_RATE)), width=12),
     graph("Age of the newest checkpoint", "s", f"Of jobs that train and have stored one. The {SHOWN} highest.",
           jobs_query(f"time() - {of_each_job('lockstep_checkpoint_last_success_timestamp_seconds')}"), width=12),

     graph("Time in a queue", "s", "Until the first admission, of jobs that name a queue of Kueue's; over the time shown, all namespaces.",
           *quantiles_shown("lockstep_queue_seconds"), width=12),
     graph("Time to start", "s", "From a job's admission, or the end of a suspension, to its round; over the time shown, all namespaces.",
           *quantiles_shown("lockstep_start_seconds"), width=12),

     row("Failures"),
     graph("Time lost, by reason", "s", "By all jobs, of the time since each was admitted, what was not spent on steps that lasted.",
           query(f"sum by (reason) (max by (namespace, job_name, reason) (lockstep_job_lost_seconds_total{{{JOBS}}}))", "{{reason}}"),
           looks=STACK, paint=LOST),
     events("Recoveries by level",
            "Failures mended in the interval, all namespaces. Membership: the others went on; Respawn: a process was started in place; "
            "ReplacePod; Checkpoint: no rank held the state.",
            query(f"sum by (level) ({happened('lockstep_recovery_seconds_count', '')})", "{{level}}"), paint=RECOVERY_LEVELS),
     events("Recoveries by cause", "The same failures by what caused them, all namespaces.",
            query(f"sum by (cause) ({happened('lockstep_recoveries_total', '')})", "{{cause}}"), paint=CAUSES),
     events("Failed jobs by reason", "Jobs that failed in the interval, all namespaces, by the reason of the condition Failed.",
            query(f"sum by (reason) ({happened('lockstep_failed_jobs_total', '')})", "{{reason}}")),
     graph("Recovery time", "s", "From the failure to the next step, over the time shown, all namespaces.",
           *quantiles_shown("lockstep_recovery_seconds")),
     events("Lost steps by recovery level", "Completed steps that had to be repeated, in the interval, all namespaces.",
            query(f"sum by (level) ({happened('lockstep_lost_steps_total', '')})", "{{level}}"), paint=RECOVERY_LEVELS),
     events("Restarts by job", f"Restarts in the interval that count towards failurePolicy.maxRestarts. The {SHOWN} jobs with most.",
            jobs_query(f"max {BY_JOB} ({happened('lockstep_job_restarts_total', JOBS)})")),
     events("Checkpoint failures by job", f"Checkpoints that could not be stored, in the interval. The {SHOWN} jobs with most.",
            jobs_query(f"sum {BY_JOB} ({happened('lockstep_checkpoint_failures_total', JOBS)})"))])


def quantiles(metric, labels):
    return [query(f"histogram_quantile({q}, sum by (le) ({rate(metric + '_bucket', labels)}))", name)
            for q, name in ((0.5, "median"), (0.99, "99 %"))]


OPERATOR = dashboard(
    "lockstep-operator", "Lockstep / Operator", "The operator's processes: which lead how many shards of the jobs, how fast it reconciles, what it asks of the API server.",
    [variable("namespace", "Namespace", 'label_values(lockstep_build_info{program="lockstep-operator"}, namespace)', several=True)],
    [annotation("Shards", "orange",
                'lockstep_shards{namespace=~"$namespace"} > lockstep_shards{namespace=~"$namespace"} offset $__interval',
                "More shards", "{{instance}}")],
    [link("Fleet", "lockstep-fleet"), link("Training job", "lockstep-training-job")],
    [row("Overview"),
     stat("Operators", "none", "Processes that Prometheus sees; they share the jobs.",
          'count(lockstep_build_info{program="lockstep-operator",namespace=~"$namespace"})', **ONE_IS_GOOD),
     stat("Shards led", "none", "Of the 16 shards of the jobs, in the release that leads the fewest.",
          'min(sum by (namespace, name) (lockstep_shards{namespace=~"$namespace"}))', **colours((None, "red"), (16, "green"))),
     stat("Leaders", "none", "Operators that lead shards of the jobs.",
          f'sum(leader_election_master_status{{namespace=~"$namespace"}} {OF_OPERATOR})', **ONE_IS_GOOD),
     stat("Reconcile errors", "percentunit", "Share of the reconciliations in the last moments that ended with an error.",
          f"sum({rate('controller_runtime_reconcile_errors_total', CONTROLLER)}) / "
          f"(sum({rate('controller_runtime_reconcile_total', CONTROLLER)}) > 0)", **colours((None, "green"), (0.1, "red"))),
     stat("Keys that wait", "none", "Jobs in the work queue.", f"sum(workqueue_depth{{{QUEUE}}})"),
     stat("Longest under way", "s", "The reconciliation that has taken longest so far. More than a minute: an answer of the API server does not come.",
          f"max(workqueue_longest_running_processor_seconds{{{QUEUE}}})", **colours((None, "green"), (60, "red"))),
     stat("Programs", "none", "In the whole cluster, workers included; several versions of a worker are normal.",
          "count by (program, version) (lockstep_build_info)", "{{program}} {{version}}",
          shows="value_and_name", direction="horizontal"),

     row("Reconciling"),
     graph("Reconciliations by result", "ops", "requeue_after: nothing to do until a time, such as the end of a back-off.",
           query(f"sum by (result) ({rate('controller_runtime_reconcile_total', CONTROLLER)})", "{{result}}"), looks=STACK,
           paint={"success": "green", "requeue_after": "blue", "error": "red"}),
     graph("Reconciliation time", "s", "Of one job's pass, answers of the API server included.",
           *quantiles("controller_runtime_reconcile_time_seconds", CONTROLLER)),
     counts("Workers", "Reconciliations under way, and how many there may be (--workers).",
           query(f"sum(controller_runtime_active_workers{{{CONTROLLER}}})", "active"),
           query(f"max(controller_runtime_max_concurrent_reconciles{{{CONTROLLER}}})", "most")),

     row("Work queue",
         counts("Keys that wait, by process", "Jobs in the queue of each process; a queue that only grows wants more --workers.",
               query(f"workqueue_depth{{{QUEUE}}}", "{{instance}}")),
         graph("Added", "ops", "Keys added, and those among them that were added after a failure.",
               query(f"sum({rate('workqueue_adds_total', QUEUE)})", "added"),
               query(f"sum({rate('workqueue_retries_total', QUEUE)})", "after a failure")),
         graph("Time in the queue", "s", "From the change of an object to the begin of the reconciliation.",
               *quantiles("workqueue_queue_duration_seconds", QUEUE)),
         graph("Time at work", "s", "From the begin of the reconciliation to its end.",
               *quantiles("workqueue_work_duration_seconds", QUEUE)),
         graph("Seconds of unfinished work", "s", "Summed over the keys in progress.",
               query(f"sum(workqueue_unfinished_work_seconds{{{QUEUE}}})", "unfinished"))),

     row("API server",
         graph("Requests by code", "reqps", "409: two writers, harmless; 429: the server defends itself; <error>: no answer came.",
               query(f'sum by (code) (rate(rest_client_requests_total{{namespace=~"$namespace"}}[$__rate_interval]) {OF_OPERATOR})', "{{code}}"),
               looks=STACK, paint=CODES, width=12),
         graph("Requests by method", "reqps", "PATCH of status is the most frequent while jobs train.",
               query(f'sum by (method) (rate(rest_client_requests_total{{namespace=~"$namespace"}}[$__rate_interval]) {OF_OPERATOR})',
                     "{{method}}"), looks=STACK, paint=METHODS, width=12)),

     row("Process",
         counts("Shards by process", "Each leads its share of the 16, even within one.",
                query('lockstep_shards{namespace=~"$namespace"}', "{{instance}}"), width=6),
         graph("Memory", "bytes", "Resident memory; it grows with the number of jobs and pods.",
               query(f'process_resident_memory_bytes{{namespace=~"$namespace"}} {OF_OPERATOR}', "{{instance}}"), width=6),
         graph("Processor", "none", "Cores in use.",
               query(f'rate(process_cpu_seconds_total{{namespace=~"$namespace"}}[$__rate_interval]) {OF_OPERATOR}', "{{instance}}"), width=6),
         counts("Open file descriptors", "One for each worker pod that waits at the rendezvous, and a few.",
               query(f'process_open_fds{{namespace=~"$namespace"}} {OF_OPERATOR}', "{{instance}}"), width=6))])


def main():
    changed = []
    for name, content in (("training-job", TRAINING_JOB), ("fleet", FLEET), ("operator", OPERATOR)):
        path = FOLDER / f"{name}.json"
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            changed.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if changed and "--check" in sys.argv:
        sys.exit(f"differs from what generate.py makes: {', '.join(changed)}")


if __name__ == "__main__":
    main()
