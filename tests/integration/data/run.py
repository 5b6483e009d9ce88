"""Training from s3://: the bits are those of the same files in a folder, and what breaks a download on its way does not end the job."""
import contextlib
import pathlib
import random
import re
import shutil
import socket
import struct
import threading
import time
import zlib

import pytest

import checkpoints
import ledger
import s3_server
from cases import expect
from local_run import SAMPLES, Run, manifest

pytestmark = pytest.mark.skipif(s3_server.missing() is not None, reason=str(s3_server.missing()))

FEATURES = 10_000  # 20 MB: three parts
PART = 8 << 20
HEAD = re.compile(rb"(GET|HEAD) (\S+) HTTP/1\.1\r\n(.*?)\r\n\r\n", re.DOTALL)
RANGE = re.compile(rb"\r?\n?range: *bytes=(\d+)-(\d+)", re.IGNORECASE)


class Proxy:
    """Between the ranks and the store: notes the requests, delays or keeps them, cuts connections."""

    def __init__(self, port):
        self.port, self.gets, self.answered, self.lock = port, [], 0, threading.Lock()
        self.delay = 0.0   # seconds before each request
        self.kept = set()  # (name, offset) of requests that get no answer
        self.keeps = 0     # how many got none
        self.cuts = []     # after how many bytes of answers a connection is cut
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.port))
                for pump in (self.requests, self.answers):
                    threading.Thread(target=self.pump, args=(pump, client, server), daemon=True).start()

    def pump(self, pump, client, server):
        with contextlib.suppress(OSError):
            pump(client, server)
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def requests(self, client, server):
        text = b""
        while piece := client.recv(1 << 16):
            text += piece
            while head := HEAD.search(text):
                text = text[head.end():]
                span = RANGE.search(head[3])
                if head[1] == b"GET" and span:
                    wanted = (head[2].decode().rpartition("/")[2], int(span[1]))
                    with self.lock:
                        self.gets.append(wanted)
                    if wanted in self.kept:
                        self.keeps += 1
                        client.recv(1 << 16)  # nothing, until the client closes
                        return
                time.sleep(self.delay)
            server.sendall(piece)

    def answers(self, client, server):
        while piece := server.recv(1 << 16):
            with self.lock:
                self.answered += len(piece)
                cut = bool(self.cuts) and self.answered >= self.cuts[0]
                if cut:
                    self.cuts.pop(0)
            if cut:
                return
            client.sendall(piece)


@contextlib.contextmanager
def store():
    """(folder of the bucket, proxy in front of a new S3 server)"""
    with s3_server.s3_server() as (bucket, port):
        yield bucket, Proxy(port)


def write_npy(path, shape, content):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content)


def write_arrays(folder):
    folder.mkdir()
    numbers = random.Random(5)
    for part, count in (("train", SAMPLES), ("test", 100)):
        labels = bytes(numbers.randrange(10) for _ in range(count))
        bits = numbers.randbytes(count * FEATURES).translate(bytes(value & 1 for value in range(256)))
        write_npy(folder / f"{part}-inputs.npy", (count, FEATURES), bits)
        write_npy(folder / f"{part}-targets.npy", (count,), labels)


def png(value, side=8):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes((value + row + column) % 256 for column in range(side)) for row in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_images(folder, count):
    for part, images in (("train", count), ("test", 8)):
        for i in range(images):
            path = folder / part / str(i % 2) / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(i))


def job(folder, data, **more):
    training = {"data": data, "model": {"name": "mlp", "mlp": {"hiddenSizes": [16]}}, "optimizer": {"name": "sgd", "learningRate": 0.001},
                "epochs": 1, "evaluation": {"everyEpochs": 1}, "determinism": "World", **more.pop("training", {})}
    return manifest(folder, replicas=2, minimum=2, **more, **training)


def complete(folder, data, proxy=None, **more):
    """The digest of the final weights."""
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    with Run(folder, job(folder, data, **more), s3_server.environment(proxy.url) if proxy else None) as run:
        code = run.finish()
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
        return checkpoints.digest_of_tensors(checkpoints.newest(folder / "checkpoints")[1]), run.output()


ARRAYS = {"format": "npy", "path": "s3://bucket/arrays"}
PARTS = [("train-inputs.npy", offset) for offset in range(0, SAMPLES * FEATURES, PART)]


def of_inputs(gets):
    return sorted(get for get in gets if get[0] == "train-inputs.npy")


def test_the_bits_are_those_of_local_files(folder):
    with store() as (bucket, proxy):
        write_arrays(bucket / "arrays")
        local, _ = complete(f"{folder}/local", {"format": "npy", "path": str(bucket / "arrays")})
        remote, _ = complete(f"{folder}/remote", ARRAYS, proxy)
        expect(remote == local, f"weights differ: {remote[:16]}, {local[:16]}")
        expect(of_inputs(proxy.gets) == PARTS, f"two ranks want each part once, not {of_inputs(proxy.gets)}")
        asked = len(proxy.gets)
        again, _ = complete(f"{folder}/again", {**ARRAYS, "cache": f"{folder}/remote/run/data"}, proxy)
        expect(again == local and len(proxy.gets) == asked, "what was there was fetched again")


def test_goes_on_after_a_cut(folder):
    with store() as (bucket, proxy):
        write_arrays(bucket / "arrays")
        proxy.cuts = [1 << 20, 10 << 20]
        complete(folder, ARRAYS, proxy)
        expect(not proxy.cuts, "no connection was cut")
        expect(set(of_inputs(proxy.gets)) == set(PARTS) and len(of_inputs(proxy.gets)) <= len(PARTS) + 2,
               f"each cut costs one part: {of_inputs(proxy.gets)}")


def test_a_new_process_resumes(folder):
    with store() as (bucket, proxy):
        write_arrays(bucket / "arrays")
        # One byte for each part after a head of 16, and 2 where it is there.
        there = lambda: [path.read_bytes()[16:16 + len(PARTS)].count(2) for path in pathlib.Path(folder).rglob(".parts")]
        proxy.kept = {PARTS[-1]}
        with Run(folder, job(folder, ARRAYS), s3_server.environment(proxy.url)) as run:
            run.until("two of three parts", lambda: there() == [2])
        proxy.kept, proxy.gets = set(), []
        complete(folder, ARRAYS, proxy)
        expect(of_inputs(proxy.gets) == PARTS[-1:], f"of what was there something was asked for: {of_inputs(proxy.gets)}")


def test_a_long_download_is_no_hang(folder):
    bound = 15  # also of the start of the process
    with store() as (bucket, proxy):
        write_images(bucket / "images", 280)
        data = {"format": "imageFolder", "path": "s3://bucket/images", "imageFolder": {"imageSize": 8}}
        proxy.delay = 1.0  # eight at a time: 35 s
        start = time.monotonic()
        _, output = complete(folder, data, proxy, sections={"healthPolicy": {"firstStepTimeoutSeconds": bound}})
        expect(time.monotonic() - start > 2 * bound, "the download was not long")
        expect("hangs:" not in output, output[-4000:])


def test_trains_before_the_copy_is_whole(folder):
    images = 280
    data = {"format": "imageFolder", "imageFolder": {"imageSize": 8}}
    with store() as (bucket, proxy):
        write_images(bucket / "images", images)
        local, _ = complete(f"{folder}/local", {**data, "path": str(bucket / "images")})
        used = ledger.history(f"{folder}/local/ledger")
        names = [path.name for kind in "01" for path in sorted((bucket / "images/train" / kind).iterdir())]  # by sample
        # Fewer than there are threads that fetch, and none that is read before the first step to warm up.
        late = [names[sample] for sample in used[max(used)] if sample >= 16][:3]
        proxy.kept = {(name, 0) for name in late}
        remote = pathlib.Path(folder, "remote")
        remote.mkdir()
        with Run(remote, job(remote, {**data, "path": "s3://bucket/images"}), s3_server.environment(proxy.url)) as run:
            run.until_step(0)
            run.until_step(max(used) - 1)
            there = {path.name for path in remote.glob("run/data/bucket/images@*/train/*/*.png")}
            expect(proxy.keeps > 0 and not there & set(late), f"{late} had not been sent, {there & set(late)} are there")
            proxy.kept = set()
            code = run.finish()
            expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
            there = {path.name for path in remote.glob("run/data/bucket/images@*/train/*/*.png")}
            expect(len(there) == images, f"{len(there)} of {images} images are in the cache")
        digest = checkpoints.digest_of_tensors(checkpoints.newest(remote / "checkpoints")[1])
        expect(digest == local, f"weights differ: {digest[:16]}, {local[:16]}")


# Nobody ever gets the last part of the file: steps that do not read it need not wait for it, and neither does the end.
def test_trains_on_the_parts_that_are_there(folder):
    gpt = {"name": "gpt", "gpt": {"layers": 1, "heads": 2, "embeddingSize": 16, "contextLength": 32, "vocabularySize": 256}}
    training = {"model": gpt, "epochs": None, "steps": 3, "evaluation": None}
    data = {"format": "tokens", "shuffle": False}
    with store() as (bucket, proxy):
        (bucket / "text").mkdir()
        (bucket / "text/train.txt").write_bytes(random.Random(5).randbytes(2 * PART + 1000))
        (bucket / "text/val.txt").write_bytes(bytes(range(100)))
        local, _ = complete(f"{folder}/local", {**data, "path": str(bucket / "text")}, training=training)
        proxy.kept = {("train.txt", 2 * PART)}
        remote, _ = complete(f"{folder}/remote", {**data, "path": "s3://bucket/text"}, proxy, training=training)
        expect(remote == local, f"weights differ: {remote[:16]}, {local[:16]}")
        expect(proxy.keeps > 0 and not list(pathlib.Path(folder).rglob("data/bucket/text@*/train.txt")), "the copy is whole")


def test_names_what_is_wrong(folder):
    with store() as (bucket, proxy):
        write_arrays(bucket / "arrays")
        absent = {"format": "npy", "path": "s3://bucket/absent"}
        for data, secret, code, message in (
                (absent, s3_server.SECRET, 3, "spec.training.data.path: s3://bucket/absent has no train-inputs.npy"),
                (ARRAYS, "another", 4, "spec.training.data.path: s3://bucket/arrays/train-inputs.npy: access denied")):
            with Run(folder, job(folder, data), s3_server.environment(proxy.url, secret)) as run:
                got = run.finish()
                expect(got == code and message in run.output(), f"exit code {got}, not {code} with {message}\n{run.output()[-4000:]}")
            shutil.rmtree(f"{folder}/run", ignore_errors=True)
