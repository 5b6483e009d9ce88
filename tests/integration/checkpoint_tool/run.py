"""`lockstep checkpoint` on what two ranks stored in a folder: listed, verified, exported, removed, and damaged in between."""
import datetime
import hashlib
import json
import os
import pathlib
import shutil
import struct

import stored
from cases import expect
from stored import STEPS, Tool, expect_the_tensors_of, flip_a_byte, newest, refusal, shards, stored_manifest, trained


def copied(folder, strategy="ddp"):
    copy = pathlib.Path(folder, "stored")
    shutil.copytree(trained(strategy), copy)
    return copy, f"file://{copy}"


def of_step(copy, step):
    return copy / f"step-{step:012}"


def test_lists_what_is_there(folder):
    copy, uri = copied(folder)
    state = lambda: sorted((str(path), path.stat().st_mtime_ns) for path in [copy, *copy.rglob("*")])
    before = state()
    rows = [line.split() for line in Tool("ls", uri).out.splitlines()]
    expect(rows[0] == ["JOB", "STEP", "TIME", "WORLD", "SIZE", "STATE"], rows)
    expect([row[1] for row in rows[1:]] == [str(step) for step in reversed(STEPS)], rows)
    expect(all((row[0], row[3], row[-1]) == ("local", "2", "complete") for row in rows[1:]), rows)
    listed = json.loads(Tool("ls", uri, "--json").out)
    for entry, step in zip(listed, reversed(STEPS), strict=True):
        manifest = stored_manifest(of_step(copy, step))
        for field, name in (("step", "step"), ("job", "jobName"), ("jobUid", "jobUid"), ("time", "time"), ("epoch", "epoch"), ("world", "world")):
            expect(entry[field] == manifest[name], f"{field}: {entry}")
        expect(entry["complete"] and entry["bytes"] == sum(path.stat().st_size for path in of_step(copy, step).iterdir()), entry)
    expect([entry["epoch"] for entry in listed] == [step / stored.STEPS_PER_EPOCH for step in reversed(STEPS)], listed)
    expect(state() == before, "listing changed something")
    (of_step(copy, 126) / "manifest.json").unlink()
    shards(of_step(copy, 120))[1].unlink()
    states = [line.split("  ")[-1] for line in Tool("ls", uri).out.splitlines()]
    expect("no manifest.json" in states[1] and "shard-00001" in states[2] and "is missing" in states[2] and "complete" == states[3].strip(), states)


def test_verifies_every_byte(folder):
    copy, uri = copied(folder)
    expect(Tool("verify", uri).out.count("sound") == len(STEPS), "not all are sound")
    for shard in shards(of_step(copy, 120)):
        sound = shard.read_bytes()
        flip_a_byte(shard)
        out = Tool("verify", uri, code=1).out
        expect(f"step 120: damaged: {uri}/step-000000000120/{shard.name}: " in out and out.count("sound") == len(STEPS) - 1, out)
        Tool("verify", uri, "--step", 80)
        Tool("verify", uri, "--step", 120, code=1)
        shard.write_bytes(sound)
    Tool("verify", uri)
    (of_step(copy, 120) / "manifest.json").write_text("{}")
    out = Tool("verify", uri, code=1).out
    expect("step 120: damaged: " in out and "manifest has no formatVersion" in out, out)
    (of_step(copy, 120) / "manifest.json").unlink()
    expect("step 120: no checkpoint" in Tool("verify", uri).out, "a save without a manifest is no damage")


def test_exports_what_the_shards_hold(folder):
    for strategy in ("ddp", "zero1"):
        uri = f"file://{trained(strategy)}"
        file = pathlib.Path(folder, f"{strategy}.safetensors")
        expect("step 126 of local" in Tool("export", uri, file).out, "says what it wrote")
        metadata = expect_the_tensors_of(newest(trained(strategy)), file)
        expect((metadata["step"], metadata["epoch"], metadata["job"]) == ("126", str(126 / stored.STEPS_PER_EPOCH), "local"), metadata)
        expect(json.loads(metadata["training"])["strategy"] == strategy, metadata)
        Tool("export", uri, file, "--step", 80, "--weights-only")  # in place of the other
        metadata = expect_the_tensors_of(of_step(trained(strategy), 80), file, lambda name: not name.startswith("optimizer."))
        expect(metadata["step"] == "80", metadata)
    expect(len(os.listdir(folder)) == 2, f"something is left: {os.listdir(folder)}")


def test_exports_the_average_of_the_weights(folder):
    import safetensors.numpy
    file = pathlib.Path(folder, "average.safetensors")
    for strategy in ("ddp", "zero1"):
        checkpoint = newest(trained(strategy))
        all_tensors = {}
        for shard in shards(checkpoint):
            all_tensors |= safetensors.numpy.load_file(shard)
        Tool("export", f"file://{checkpoint.parent}", file, "--average")
        found = safetensors.numpy.load_file(file)
        expect(found.keys() == {name for name in all_tensors if not name.startswith("optimizer.")}, sorted(found))
        for name, array in found.items():
            difference = all_tensors[f"optimizer.average_minus_weight.{name}"]
            expect(difference.any() and (array == all_tensors[name] + difference).all(), f"{strategy}: {name} is not its average")
    expect(os.listdir(folder) == ["average.safetensors"], os.listdir(folder))


def test_exports_no_average_where_there_is_none(folder):
    checkpoint = write_checkpoint(f"{folder}/stored", 1 << 20)
    refusal("export", f"file://{checkpoint.parent}", f"{folder}/file", "--average", code=2, says="step 7 has no average of the weights")
    expect(os.listdir(folder) == ["stored"], os.listdir(folder))


def test_exports_nothing_of_a_damaged_one(folder):
    copy, uri = copied(folder)
    flip_a_byte(shards(of_step(copy, 126))[1])
    file = pathlib.Path(folder, "model.safetensors")
    file.write_text("what was there")
    refusal("export", uri, file, code=1, says="shard-00001")
    expect(file.read_text() == "what was there" and sorted(os.listdir(folder)) == ["model.safetensors", "stored"], os.listdir(folder))
    Tool("export", uri, file, "--step", 120)


def write_checkpoint(folder, data_bytes, header=None, name="shard-00000-of-00001.round-1.safetensors", job="local", uid="1", step=7):
    """One that another program wrote."""
    header = header or json.dumps({"weight": {"dtype": "U8", "shape": [data_bytes], "data_offsets": [0, data_bytes]}}).encode()
    head = struct.pack("<Q", len(header)) + header
    checkpoint = of_step(pathlib.Path(folder), step)
    checkpoint.mkdir(parents=True)
    path = checkpoint / "shard-00000-of-00001.round-1.safetensors"
    with open(path, "wb") as file:
        file.write(head)
        for _ in range(data_bytes >> 20):
            file.write(os.urandom(1 << 20))
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps({
        "formatVersion": 1, "jobUid": uid, "jobName": job, "step": step, "round": 1, "world": 1, "shards": [
            {"name": name, "bytes": len(head) + data_bytes, "sha256": digest, "tensors": [
                {"name": "weight", "dtype": "U8", "shape": [data_bytes], "offset": len(head), "bytes": data_bytes}]}]}))
    return checkpoint


def test_needs_no_memory_for_the_state(folder):
    large = 400 << 20
    checkpoint = write_checkpoint(f"{folder}/stored", large)
    file = pathlib.Path(folder, "large.safetensors")
    uri = f"file://{checkpoint.parent}"
    for tool in (Tool("verify", uri), Tool("export", uri, file)):
        expect(tool.most_memory < large / 2, f"{tool.most_memory >> 20} MiB of memory")
    expect(file.stat().st_size > large, "too short")


def test_removes_what_is_named_but_not_the_last(folder):
    copy, uri = copied(folder)
    Tool("rm", uri, "--step", 120)
    expect(not of_step(copy, 120).exists() and of_step(copy, 80).exists() and of_step(copy, 126).exists(), os.listdir(copy))
    flip_a_byte(shards(of_step(copy, 126))[0])
    refusal("rm", uri, "--step", 80, code=1, says="step 80 is the only sound checkpoint below")
    Tool("verify", uri, "--step", 80)
    Tool("rm", uri, "--step", 126)  # damaged: nothing is lost
    refusal("rm", uri, "--step", 80, code=1, says="--force")
    under_way = of_step(copy, 160)
    under_way.mkdir()
    (under_way / "shard-00000-of-00002.round-1.safetensors").write_text("…")
    refusal("rm", uri, "--step", 160, code=1, says="may be a save that is under way")
    Tool("rm", uri, "--step", 160, "--force")
    leftover = of_step(copy, 40)
    leftover.mkdir()
    (leftover / "shard-00000-of-00002.round-1.safetensors").write_text("…")
    Tool("rm", uri, "--step", 40)
    Tool("rm", uri, "--step", 80, "--force")
    expect(not list(copy.glob("step-*")) and (copy / "history.jsonl").exists(), os.listdir(copy))
    expect("there is no checkpoint below" in Tool("ls", uri).out, "says that it is empty")


def test_removes_all_of_one_job_and_nothing_else(folder):
    uri = f"file://{folder}"
    left = write_checkpoint(folder, 1 << 20, uid="theirs")
    for step in (8, 9):
        write_checkpoint(folder, 0, uid="ours", step=step)
    pathlib.Path(folder, "history.jsonl").write_text("")
    out = Tool("rm", uri, "--all-of-job", "ours").out
    expect(out == f"removed what job ours stored below {uri}: 2 checkpoints, 4 objects\n", out)
    expect(sorted(os.listdir(folder)) == ["history.jsonl", left.name], os.listdir(folder))
    Tool("verify", uri)
    expect(": 0 checkpoints, 0 objects" in Tool("rm", uri, "--all-of-job", "ours").out, "again: nothing is left to do")
    Tool("rm", uri, "--all-of-job", "theirs")
    expect(not os.listdir(folder), "the last one takes the history along")


def test_leaves_a_job_that_runs_alone(folder):
    uri = f"file://{folder}"
    checkpoint = write_checkpoint(folder, 0, uid="ours")
    marker = pathlib.Path(folder, "owners", "ours.json")
    marker.parent.mkdir()
    marker.write_text(json.dumps({"jobUid": "ours", "time": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}))
    refusal("rm", uri, "--all-of-job", "ours", code=1, says="job ours runs")
    expect(checkpoint.exists(), "it was removed")
    Tool("rm", uri, "--all-of-job", "ours", "--force")
    expect(not os.listdir(folder), os.listdir(folder))


def test_names_what_is_wrong(folder):
    uri = f"file://{trained()}"
    refusal("ls", "/tmp", code=2, says='URI: "/tmp" is neither s3://bucket/prefix nor gs://bucket/prefix nor abfs://container@account.dfs.core.windows.net/prefix nor file:///folder')
    refusal("ls", f"file://{folder}/absent", code=2, says="absent: No such file or directory")
    expect(not os.path.exists(f"{folder}/absent"), "reading made a folder")
    refusal("verify", f"file://{folder}", code=1, says=f"there is no checkpoint below file://{folder}")
    refusal("verify", uri, "--step", 7, code=1, says="there is no step 7 below")
    refusal("export", uri, "--step", 7, f"{folder}/x", code=1, says="there is no step 7 below")
    refusal("export", uri, f"{folder}/absent/x", code=2, says=f"FILE: {folder}/absent/x: No such file or directory")
    refusal("export", uri, folder, code=2, says=f"FILE: {folder}: is a folder")
    refusal("rm", uri, "--step", 7, code=1, says="there is no step 7 below")
    for arguments in (["rm", uri], ["rm", uri, "--all-of-job", ""], ["rm", uri, "--step", "80", "--all-of-job", "x"], ["ls"], ["export", uri], ["nonsense"], [], ["verify", uri, "--step", "-1"]):
        Tool(*arguments, code=2)
    expect('unknown command "verfy": did you mean "verify"?' in Tool("verfy", uri, code=2).err, "no word of what was meant")
    expect("--step: must be 0 or more, not -1\n" in Tool("verify", uri, "--step", "-1", code=2).err, "no clear word on the step")
    refusal("ls", "s3://bucket/job", code=2, says="s3://bucket/job needs credentials; set AWS_ACCESS_KEY_ID",
            environment={**dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE"), ""),
                         "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true"})


def test_trusts_nothing_that_is_stored(folder):
    secret = pathlib.Path(folder, "secret")
    secret.write_text("not of a checkpoint")
    for number, (says, fields) in enumerate([
            ("names a bad object", {"name": "../../secret"}),
            ("names a bad object", {"name": str(secret)}),
            ("header is not a JSON object", {"header": b"[" * 100_000}),
            ("offsets do not match the shape", {"header": b'{"weight":{"dtype":"U8","shape":[99],"data_offsets":[0,0]}}'}),
            ("shape overflows", {"header": b'{"weight":{"dtype":"F64","shape":[9223372036854775807,9],"data_offsets":[0,0]}}'}),
            ("tensors differ from the manifest", {"header": b"{}"})]):
        uri = f"file://{write_checkpoint(f'{folder}/{number}', 0, **fields).parent}"
        out = Tool("verify", uri, code=1).out
        expect("step 7: damaged: " in out and says in out, f"{fields}: {out}")
        Tool("export", uri, f"{folder}/exported", code=1)
    # A length field that claims more than there is, with the right SHA-256.
    checkpoint = write_checkpoint(f"{folder}/long", 0)
    shard, = shards(checkpoint)
    shard.write_bytes(struct.pack("<Q", 1 << 62) + shard.read_bytes()[8:])
    changed = stored_manifest(checkpoint)
    changed["shards"][0]["sha256"] = hashlib.sha256(shard.read_bytes()).hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps(changed))
    expect("header longer than the file" in Tool("verify", f"file://{checkpoint.parent}", code=1).out, "believed the length")
    # What a terminal would act on.
    checkpoint = write_checkpoint(f"{folder}/terminal", 0, job="\x1b[2J\nworse")
    tool = Tool("ls", f"file://{checkpoint.parent}")
    expect("?[2J?worse" in tool.out and "\x1b" not in tool.out, repr(tool.out))
    expect(not os.path.exists(f"{folder}/exported"), "something was exported")
