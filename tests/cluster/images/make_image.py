#!/usr/bin/env python3
"""make_image.py NAME ROOT ARCHIVE [PROGRAM…]: an OCI archive with the files of the folder ROOT in one layer.

For the small helper images of the tests, without a container engine. The same files give the same bytes.
"""
import hashlib
import io
import json
import os
import sys
import tarfile


def plain(entry):
    """Owner, group and time would differ from machine to machine."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def layer_of(root):
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(os.listdir(root)):
            tar.add(os.path.join(root, name), arcname=name, filter=plain)
    return layer.getvalue()


class Blobs:
    """Content by digest, and the descriptors that point to it."""

    def __init__(self):
        self.content = {}

    def add(self, kind, content):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        digest = hashlib.sha256(content).hexdigest()
        self.content[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}


def image_of(name, root, entrypoint):
    blobs = Blobs()
    layer = blobs.add("layer.v1.tar", layer_of(root))
    config = blobs.add("config.v1+json", {
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "WorkingDir": "/"}})
    manifest = blobs.add("manifest.v1+json", {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": [layer]})
    manifest["annotations"] = {"io.containerd.image.name": name,
                               "org.opencontainers.image.ref.name": name.rsplit(":", 1)[-1]}
    return {"schemaVersion": 2, "manifests": [manifest]}, blobs


def main():
    name, root, archive, *entrypoint = sys.argv[1:]
    index, blobs = image_of(name, root, entrypoint)
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode()}
    files.update({f"blobs/sha256/{digest}": content for digest, content in blobs.content.items()})
    with tarfile.open(archive, "w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


main()
