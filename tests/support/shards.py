"""Which replica of the operator leads which job, by the table in its Lease."""
import json

SHARDS = 16


def shard_of(uid):
    value = 0xcbf29ce484222325
    for byte in uid.encode():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return (value ^ (value >> 32)) % SHARDS


class Table:
    """`lease`: as the API server has it."""

    def __init__(self, lease):
        table = json.loads(lease["metadata"].get("annotations", {}).get("lockstep.dev/shards", "{}"))
        self.replicas, self.holders = table.get("replicas", {}), table.get("holders", [])

    def leader_of(self, uid):
        """The identity; empty where nobody leads the job."""
        return self.holders[shard_of(uid)] if self.holders else ""

    def counts(self):
        """How many shards each replica holds."""
        return {identity: self.holders.count(identity) for identity in self.replicas}

    def is_even(self, replicas):
        counts = self.counts().values()
        return len(counts) == replicas and sum(counts) == SHARDS and max(counts) - min(counts) <= 1
