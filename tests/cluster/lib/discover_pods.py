#!/usr/bin/env python3
"""discover_pods.py API_URL PKI_FOLDER TARGETS: tells Prometheus which pods to scrape, through a file of targets.

Debian's Prometheus is built without discovery by the Kubernetes API. This asks the API server every second and rewrites
TARGETS when the answer changed. It does what the usual relabelling does: running pods with the annotation
prometheus.io/scrape: "true", at prometheus.io/port (else their first declared port) and prometheus.io/path (else /metrics);
pod labels become labels of the series, with namespace, pod and node.
"""
import http.client
import json
import os
import re
import ssl
import sys
import time
import urllib.parse

ANNOTATION = "prometheus.io/"


def connect(url, pki):
    """One connection for all questions: a handshake each second would cost the API server more than the answers."""
    context = ssl.create_default_context(cafile=f"{pki}/ca.crt")
    context.load_cert_chain(f"{pki}/admin.crt", f"{pki}/admin.key")
    return http.client.HTTPSConnection(urllib.parse.urlsplit(url).netloc, context=context, timeout=10)


def declared_port(pod):
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", [])]
    return ports[0]["containerPort"] if ports else 80


def target(pod):
    """The pod's entry in the file, or None if it does not ask for one or has no address yet."""
    meta, status = pod["metadata"], pod["status"]
    annotations = {key: value for key, value in meta.get("annotations", {}).items() if key.startswith(ANNOTATION)}
    if annotations.get(ANNOTATION + "scrape") != "true" or not status.get("podIP"):
        return None
    labels = {re.sub(r"[^a-zA-Z0-9_]", "_", key): value for key, value in meta.get("labels", {}).items()}
    labels.update(namespace=meta["namespace"], pod=meta["name"], node=pod["spec"]["nodeName"],
                  __metrics_path__=annotations.get(ANNOTATION + "path", "/metrics"))
    return {"targets": [f"{status['podIP']}:{annotations.get(ANNOTATION + 'port', declared_port(pod))}"], "labels": labels}


def targets(api):
    # version 0: from the API server's memory, no read of etcd
    api.request("GET", "/api/v1/pods?fieldSelector=status.phase%3DRunning&resourceVersion=0")
    answer = api.getresponse()
    text = answer.read()
    if answer.status != http.HTTPStatus.OK:
        raise OSError(f"{answer.status} {text[:200]!r}")
    return json.dumps([entry for entry in map(target, json.loads(text)["items"]) if entry], sort_keys=True)


def main():
    url, pki, path = sys.argv[1:]
    api, written = connect(url, pki), None
    while True:
        try:
            found = targets(api)
            if found != written:
                with open(path + ".new", "w", encoding="utf-8") as file:
                    file.write(found)
                os.rename(path + ".new", path)
                written = found
        except (OSError, http.client.HTTPException) as error:  # the API server may be away for a while
            print(error, flush=True)
            api.close()  # the next question connects again
        time.sleep(1)


main()
