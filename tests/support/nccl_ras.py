"""A stand-in for the RAS thread of a process that uses NCCL: it speaks as rasClientEventLoop in NCCL's src/ras/client_support.cc does."""
import contextlib
import json
import socketserver
import threading


def answer(pids, counts, size):
    """What rasDumpCommsToJSON writes of one communicator; `counts`: AllReduces of each rank."""
    ranks = [{"rank": rank, "host": "127.0.0.1", "pid": pid, "cuda_dev": rank, "nvml_dev": rank,
              "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False},
              "collective_counts": {"Broadcast": 1, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": count}}
             for rank, (pid, count) in enumerate(zip(pids, counts))]
    communicator = {"hash": "0xae94423cfbb2ef4a", "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e", "size": size,
                    "ranks_count": len(ranks), "missing_ranks_count": 0, "ranks": ranks, "missing_ranks": []}
    return {"nccl_version": "2.30.7", "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "timestamp": "2026-01-01 00:00:00",
            "communicators_count": 1, "communicators": [communicator], "ras": {"collection_time_sec": 0.0, "timeouts_count": 0}}


@contextlib.contextmanager
def serve(status):
    """Yields the value of NCCL_RAS_ADDR. `status()` returns the answer."""
    class Client(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                command = line.decode().strip()
                if command == "STATUS":
                    self.wfile.write(json.dumps(status(), indent=2).encode() + b"\n")
                    return
                known = command.startswith("TIMEOUT ") or command == "SET FORMAT json"
                reply = "SERVER PROTOCOL 2" if command.startswith("CLIENT PROTOCOL ") else "OK" if known else f"ERROR: Unknown command {command}"
                self.wfile.write(f"{reply}\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Client) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
