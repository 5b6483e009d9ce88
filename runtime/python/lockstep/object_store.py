"""Connects to the object store that a URI names, with the credentials that the environment holds: the same variables as for `lockstep-rank`
(docs/reference/environment.md), so one Secret serves both. S3's are read by Arrow itself.
"""
from __future__ import annotations

import contextlib
import datetime
import json
import os
import typing
import urllib.parse
import urllib.request

import pyarrow.fs  # type: ignore[import-untyped]

from lockstep.errors import LockstepError
from lockstep.library import library

# For one answer; storage.py asks again.
_RETRIES = datetime.timedelta(seconds=1)
_GOOGLES_OWN = "GOOGLE_APPLICATION_CREDENTIALS"


def connect(uri: str) -> tuple[typing.Any, str]:
    """The file system, and the path in it. LockstepError: the URI or a variable is wrong. OSError: no answer."""
    if uri.startswith("gs://"):
        return _google(_settings(uri)), uri[len("gs://"):]
    if uri.startswith("abfs://"):
        settings = _settings(uri)
        return _azure(settings), settings["path"]
    return _by_arrow(uri)


def _settings(uri: str) -> dict[str, typing.Any]:
    found: dict[str, typing.Any] = json.loads(library().lockstep_store_settings(uri.encode()))
    if "error" in found:
        raise LockstepError(found["error"])
    return found


def _google(settings: dict[str, typing.Any]) -> typing.Any:
    with _key_file(settings["key"]):
        return pyarrow.fs.GcsFileSystem(anonymous=settings["isAnonymous"], scheme=settings["scheme"], endpoint_override=settings["endpoint"] or None,
                                        retry_time_limit=_RETRIES)


@contextlib.contextmanager
def _key_file(content: str) -> typing.Iterator[None]:
    """Arrow takes Google's credentials from a file only. This one is in memory."""
    if not content:
        yield
        return
    file, before = os.memfd_create("lockstep-google-credentials"), os.environ.get(_GOOGLES_OWN)
    try:
        os.write(file, content.encode())
        os.environ[_GOOGLES_OWN] = f"/proc/{os.getpid()}/fd/{file}"
        yield
    finally:
        del os.environ[_GOOGLES_OWN]
        if before is not None:
            os.environ[_GOOGLES_OWN] = before
        os.close(file)


def _azure(settings: dict[str, typing.Any]) -> typing.Any:
    access: dict[str, str] = {}
    if settings["key"]:
        access["account_key"] = settings["key"]
    elif settings["sasToken"]:  # Azure's tools print it with and without the question mark; Arrow appends it to URLs unchanged
        access["sas_token"] = "?" + settings["sasToken"].lstrip("?")
    return pyarrow.fs.AzureFileSystem(settings["account"], blob_storage_scheme=settings["scheme"], dfs_storage_scheme=settings["scheme"],
                                      blob_storage_authority=settings["blobAuthority"], dfs_storage_authority=settings["dfsAuthority"], **access)


def _by_arrow(uri: str) -> tuple[typing.Any, str]:
    # Some servers do not understand a checksum that follows the content (runtime/checkpoint/remote_store.cc).
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")  # else the store is asked for it
    if uri.startswith("s3://") and (proxy := _proxy_for(endpoint or "https://s3.amazonaws.com")):
        server = urllib.parse.urlsplit(endpoint or "")  # from_uri reads the variable, but takes no proxy
        store = pyarrow.fs.S3FileSystem(region=region or "us-east-1", proxy_options=proxy, endpoint_override=server.netloc or None, scheme=server.scheme or "https")
        return store, uri[len("s3://"):]
    try:
        file_system, path = pyarrow.fs.FileSystem.from_uri(f"{uri}?region={region}" if region and uri.startswith("s3://") else uri)
    except ValueError as error:
        raise LockstepError(f"{uri}: {error}; write s3://bucket/run, gs://bucket/run, abfs://container@account.dfs.core.windows.net/run or a folder") from None
    return file_system, path


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this URL. Arrow does not read these variables."""
    place = urllib.parse.urlsplit(url)
    host = place.hostname or ""
    is_near = host in ("localhost", "::1") or host.startswith("127.") or urllib.request.proxy_bypass_environment(place.netloc)
    return None if is_near else urllib.request.getproxies_environment().get(place.scheme)
