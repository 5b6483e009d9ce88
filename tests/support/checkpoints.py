"""Reads stored checkpoints (docs/reference/file-formats.md has the layout)."""
import array
import contextlib
import hashlib
import json
import os
import pathlib


def newest(folder):
    """(step, folder of the checkpoint) of the newest complete one anywhere below `folder`, None before the first. Older ones may be
    removed meanwhile."""
    found = []
    for name, _, files in os.walk(folder):
        place = pathlib.Path(name)
        if place.name.startswith("step-") and "manifest.json" in files:
            with contextlib.suppress(FileNotFoundError):
                found.append((json.loads((place / "manifest.json").read_text())["step"], place))
    return max(found, default=None)


def digest_of_tensors(checkpoint):
    """SHA-256 over names, types, shapes and bytes of all tensors, however they are spread over shards."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    tensors = [(tensor["name"], shard["name"], tensor) for shard in manifest["shards"] for tensor in shard["tensors"]]
    total = hashlib.sha256()
    for name, shard, tensor in sorted(tensors, key=lambda entry: entry[0]):
        total.update(f"{name} {tensor['dtype']} {tensor['shape']}\n".encode())
        with open(checkpoint / shard, "rb") as file:
            file.seek(tensor["offset"])
            content = file.read(tensor["bytes"])
        assert len(content) == tensor["bytes"], f"{shard} is cut short"
        total.update(content)
    return total.hexdigest()


def floats(checkpoint):
    """The numbers of all float32 tensors, by name."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    found = {}
    for shard in manifest["shards"]:
        content = (checkpoint / shard["name"]).read_bytes()
        for tensor in shard["tensors"]:
            if tensor["dtype"] == "F32":
                found[tensor["name"]] = array.array("f", content[tensor["offset"]:tensor["offset"] + tensor["bytes"]])
    return found
