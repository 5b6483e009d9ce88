"""The API server, by the package `kubernetes`. Nothing else imports it: it is an optional dependency and, before release 37, has no types."""
from __future__ import annotations

import importlib
import json
import os
import pathlib
import typing

from lockstep.client.manifest import GROUP, KIND, PLURAL, VERSION, Object
from lockstep.errors import LockstepError

_CONNECT_SECONDS, _ANSWER_SECONDS = 10.0, 60.0
_GONE = 410
_POD_NAMESPACE = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Unreachable(LockstepError):
    """The API server does not answer, or cannot now."""


class Expired(LockstepError):
    """A watch must begin again with the object."""


class Refused(LockstepError):
    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Kube:
    """Requests for one namespace. kubeconfig as kubectl reads it, else the service account of this pod."""

    def __init__(self, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
        try:
            self._package: typing.Any = importlib.import_module("kubernetes")
        except ModuleNotFoundError:
            raise LockstepError("the package `kubernetes` is not installed: pip install 'lockstep[client]'; lockstep.Client.local() needs none") from None
        api, default = self._connect(context, kubeconfig)
        self.namespace = namespace or default
        self._jobs = self._package.client.CustomObjectsApi(api)
        self._core = self._package.client.CoreV1Api(api)
        self._to_json = api.sanitize_for_serialization

    def _connect(self, context: str | None, kubeconfig: str | None) -> tuple[typing.Any, str]:
        """The client, and the namespace that it is for."""
        config = self._package.config
        has_file = bool(kubeconfig or context or os.environ.get("KUBECONFIG")) or pathlib.Path("~/.kube/config").expanduser().exists()
        try:
            if "KUBERNETES_SERVICE_HOST" in os.environ and not has_file:
                loaded = self._package.client.Configuration()
                config.load_incluster_config(client_configuration=loaded)
                return self._package.client.ApiClient(loaded), _POD_NAMESPACE.read_text().strip()
            contexts, active = config.list_kube_config_contexts(kubeconfig)
            chosen = active if context is None else next((each for each in contexts if each["name"] == context), {})
            return config.new_client_from_config(kubeconfig, context), chosen.get("context", {}).get("namespace", "default")
        except (config.ConfigException, OSError) as error:
            where = f" from {kubeconfig}" if kubeconfig else ""
            raise LockstepError(f"no cluster is known{where}: {error}. Set KUBECONFIG, or use lockstep.Client.local()") from None

    def create_job(self, job: Object) -> Object:
        return self._ask(self._jobs.create_namespaced_custom_object, body=job, field_validation="Strict", **self._of_jobs())

    def get_job(self, name: str) -> Object:
        return self._ask(self._jobs.get_namespaced_custom_object, name=name, **self._of_jobs())

    def list_jobs(self) -> list[Object]:
        return typing.cast("list[Object]", self._ask(self._jobs.list_namespaced_custom_object, **self._of_jobs())["items"])

    def patch_job(self, name: str, patch: Object) -> Object:
        return self._ask(self._jobs.patch_namespaced_custom_object, name=name, body=patch, **self._of_jobs())

    def delete_job(self, name: str) -> None:
        self._ask(self._jobs.delete_namespaced_custom_object, name=name, **self._of_jobs())

    def create_config_map(self, config_map: Object) -> None:
        self._ask(self._core.create_namespaced_config_map, namespace=self.namespace, body=config_map)

    def patch_config_map(self, name: str, patch: Object) -> None:
        self._ask(self._core.patch_namespaced_config_map, name=name, namespace=self.namespace, body=patch)

    def delete_config_map(self, name: str) -> None:
        self._ask(self._core.delete_namespaced_config_map, name=name, namespace=self.namespace)

    def list_pods(self, selector: str) -> list[Object]:
        return typing.cast("list[Object]", self._ask(self._core.list_namespaced_pod, namespace=self.namespace, label_selector=selector)["items"])

    def watch_job(self, name: str, version: str, seconds: float) -> typing.Iterator[tuple[str, Object]]:
        """(ADDED, MODIFIED or DELETED, the job), for so many seconds at most. Raises Expired if the version is too old."""
        events = self._stream(self._jobs.list_namespaced_custom_object, seconds + _ANSWER_SECONDS, field_selector=f"metadata.name={name}",
                              resource_version=version, timeout_seconds=max(1, int(seconds)), **self._of_jobs())
        for event in events:
            yield event["type"], event["raw_object"]

    def log(self, pod: str, container: str, tail: int | None = None) -> list[str]:
        text = self._call(self._core.read_namespaced_pod_log, name=pod, namespace=self.namespace, container=container,
                          _preload_content=False, **({} if tail is None else {"tail_lines": tail}))
        return typing.cast("list[str]", text.data.decode(errors="replace").splitlines())

    def follow_log(self, pod: str, container: str, since_seconds: int | None) -> typing.Iterator[str]:
        """Lines with a time in front, until the container has ended."""
        since = {} if since_seconds is None else {"since_seconds": since_seconds}
        return self._stream(self._core.read_namespaced_pod_log, None, name=pod, namespace=self.namespace, container=container, follow=True,
                            timestamps=True, **since)

    def _of_jobs(self) -> dict[str, str]:
        return {"group": GROUP, "version": VERSION, "namespace": self.namespace, "plural": PLURAL}

    def _ask(self, call: typing.Callable[..., typing.Any], **arguments: typing.Any) -> Object:
        return typing.cast(Object, self._to_json(self._call(call, **arguments)))

    def _call(self, call: typing.Callable[..., typing.Any], **arguments: typing.Any) -> typing.Any:
        try:
            return call(_request_timeout=(_CONNECT_SECONDS, _ANSWER_SECONDS), **arguments)
        except Exception as error:
            raise self._explained(error) from None

    def _stream(self, call: typing.Callable[..., typing.Any], seconds: float | None, **arguments: typing.Any) -> typing.Iterator[typing.Any]:
        timeout = None if seconds is None else (_CONNECT_SECONDS, seconds)
        try:
            yield from self._package.watch.Watch().stream(call, _request_timeout=timeout, **arguments)
        except Exception as error:
            raise self._explained(error) from None

    def _explained(self, error: Exception) -> Exception:
        """In one line; another exception remains as it is."""
        exceptions = importlib.import_module("urllib3.exceptions")
        if isinstance(error, exceptions.HTTPError):
            return Unreachable(f"no connection to the API server: {error}")
        if not isinstance(error, self._package.client.ApiException):
            return error
        found: typing.Any = error
        message, status = _message(found), int(found.status or 0)
        if status == _GONE:
            return Expired(message)
        if status == 0 or status == 429 or status >= 500:
            return Unreachable(f"the API server cannot answer: {message}")
        if status == 403:
            message = f"not allowed: {message}"
        if status == 401:
            message = f"the API server does not accept these credentials: {message}"
        if status == 404 and ("could not find the requested resource" in message or "page not found" in message):
            message = f"this cluster has no {KIND}s: Lockstep is not installed, or the context names another cluster"
        return Refused(message, status)


def _message(error: typing.Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.body or error.reason).strip()
