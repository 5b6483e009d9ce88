#!/usr/bin/env python3
"""docker/sbom.py NAME VERSION DIGEST ROOT WHEELS…: the list of what is in an image, as CycloneDX JSON, to standard output.

ROOT is the image's file system, DIGEST its manifest's SHA-256, WHEELS the folders of .ci/install from which files came. Debian's
packages, with their licenses, are debsbom's work; this adds what dpkg does not know: our programs, the wheels' libraries, and
the headers that are compiled in. A library that no wheel has, byte for byte, is an error: it would be missing from the list.
Runs with the folder of `.ci/install --print-image-site` on PYTHONPATH. The same image gives the same bytes: DIGEST makes the serial
number, SOURCE_DATE_EPOCH [0] the time.
"""
import base64
import csv
import datetime
import email
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import uuid

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

# Libraries that are headers only, by the Debian package that the programs are compiled with on this machine.
HEADERS = ["libboost1.74-dev", "libcli11-dev", "nlohmann-json3-dev"]


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_component(path, root, version):
    return Component(type=ComponentType.FILE, name=f"/{path.relative_to(root)}", version=version, bom_ref=f"file:/{path.relative_to(root)}",
                     hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256_of(path))])


def files_of_wheels(folders):
    """SHA-256 -> the metadata of the wheel that has such a file."""
    owners = {}
    for folder in folders:
        for record in pathlib.Path(folder).glob("*.dist-info/RECORD"):
            metadata = email.message_from_string((record.parent / "METADATA").read_text())
            for _, digest, _ in csv.reader(record.open()):
                encoded = digest.removeprefix("sha256=")
                owners[base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()] = metadata
    return owners


def wheel_component(metadata):
    name, version = metadata["Name"], metadata["Version"]
    purl = PackageURL("pypi", None, name, version)
    return Component(type=ComponentType.LIBRARY, name=name, version=version, purl=purl, bom_ref=str(purl),
                     licenses=[LicenseExpression(metadata["License-Expression"] or metadata["License"])])


def header_component(package):
    version = subprocess.run(["dpkg-query", "--show", "--showformat=${Version}", package], stdout=subprocess.PIPE, text=True,
                             check=True).stdout
    purl = PackageURL("deb", "debian", package, version)
    return Component(type=ComponentType.LIBRARY, group="debian", name=package, version=version, purl=purl, bom_ref=str(purl),
                     properties=[Property(name="lockstep:part", value="compiled into Lockstep's programs")])


def debian_packages(name, version, root, serial, time):
    tool = [sys.executable, "-c", "import sys; from debsbom.cli import main; sys.exit(main())", "generate"]
    options = ["--sbom-type=cdx", "--cdx-schema-version=1.6", f"--cdx-serialnumber={serial}", f"--timestamp={time.isoformat()}",
               "--with-licenses", f"--distro-name={name}", f"--distro-version={version}", f"--root={root}", "--out=-"]
    result = subprocess.run(tool + options, stdout=subprocess.PIPE, check=True)
    return Bom.from_json(json.loads(result.stdout))


def add_licences(root, components):
    """Each library that dpkg does not know has its licence in the image, and no other is there."""
    folder = root / "usr/local/share/licenses"
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        component = components[path.relative_to(folder).parts[0]]
        component.components.add(file_component(path, root, component.version))
    missing = [name for name in components if not (folder / name).is_dir()]
    if missing:
        sys.exit(f"docker/sbom.py: no licence of {', '.join(missing)} in {folder}: docker/stage.sh copies them")


def main(name, version, digest, root, *wheels):
    root = pathlib.Path(root)
    time = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), datetime.timezone.utc)
    bom = debian_packages(name, version, root, uuid.uuid5(uuid.NAMESPACE_OID, digest), time)
    image = bom.metadata.component
    image.type = ComponentType.CONTAINER
    image.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=digest))

    own = [file_component(path, root, version) for path in sorted((root / "usr/local/bin").iterdir())]
    owners = files_of_wheels(wheels)
    bundled = {}
    for path in sorted((root / "usr/local/lib").glob("*.so*")):
        file = file_component(path, root, None)
        metadata = owners.get(next(iter(file.hashes)).content)
        if path.name.startswith("liblockstep_"):
            file.version = version
            own.append(file)
        elif metadata:
            wheel = bundled.setdefault(metadata["Name"], wheel_component(metadata))
            file.version = wheel.version
            wheel.components.add(file)
        else:
            sys.exit(f"docker/sbom.py: {path.name} is in no wheel of {' '.join(wheels)}: what is it, and of which version?")
    headers = [header_component(package) for package in HEADERS]
    add_licences(root, {component.name: component for component in [*bundled.values(), *headers]})
    for component in own + list(bundled.values()) + headers:
        bom.components.add(component)
    bom.register_dependency(image, own + list(bundled.values()))
    for program in own:
        bom.register_dependency(program, headers)
    print(JsonV1Dot6(bom).output_as_string(indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
