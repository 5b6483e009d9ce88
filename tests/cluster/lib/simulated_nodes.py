#!/usr/bin/env python3
"""simulated_nodes.py HOST PORT PKI_FOLDER COUNT: creates the nodes that kwok plays.

Posts over a few kept connections: kubectl limits itself to 50 requests a second.
"""
import http.client
import json
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor

CONNECTIONS = 4
RESOURCES = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}


def node(index):
    name = f"kwok-{index}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64",
                       "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": f"zone-{index % 8}"},
        },
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": RESOURCES, "capacity": RESOURCES},
    }


def create(host, port, pki, indices):
    context = ssl.create_default_context(cafile=f"{pki}/ca.crt")
    context.load_cert_chain(f"{pki}/admin.crt", f"{pki}/admin.key")
    api = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
    for index in indices:
        api.request("POST", "/api/v1/nodes", json.dumps(node(index)), {"Content-Type": "application/json"})
        answer = api.getresponse()
        text = answer.read().decode()
        if answer.status != 201:
            raise SystemExit(f"node {index}: {answer.status} {text}")


def main():
    host, port, pki, count = sys.argv[1:]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        parts = [range(first, int(count) + 1, CONNECTIONS) for first in range(1, CONNECTIONS + 1)]
        for done in [pool.submit(create, host, port, pki, part) for part in parts]:
            done.result()


main()
