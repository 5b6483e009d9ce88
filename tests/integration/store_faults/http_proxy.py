"""A proxy between ranks and their S3 server that fails as toxiproxy cannot: by byte of a whole save, and by request.

One request a connection, so that each answer is whole or cut. A rule is armed for as long as the test wants; it counts its `hits`.
"""
import contextlib
import dataclasses
import socket
import struct
import threading
from collections.abc import Callable

PIECE = 1 << 16


@dataclasses.dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    head: bytes  # as it goes to the server

    def is_of_multipart(self):
        return "uploadId=" in self.target

    def completes(self):
        return self.method == "POST" and self.is_of_multipart()

    def begins(self):
        return self.method == "POST" and "uploads" in self.target and not self.is_of_multipart()

    def is_part(self):
        return self.method == "PUT" and "partNumber=" in self.target

    def lists_uploads(self):
        return self.method == "GET" and "uploads=" in self.target

    def is_manifest(self):
        return self.method == "PUT" and "/manifest.json" in self.target


def anything(_):
    return True


class Rule:
    """Lets everything pass; the others differ in one method."""

    def __init__(self):
        self.hits = 0

    def refuses(self):
        """Whether a connection ends before it is read from."""
        return False

    def answer(self, request):
        """The answer instead of that of the server: (status line, body)."""

    def pass_on(self, piece):
        """How much of these bytes reaches the server; less ends the connection."""
        return piece

    def loses_the_answer_to(self, request):
        return False


class Cut(Rule):
    """The network is gone after so many bytes of uploads, over all connections, and stays so."""

    def __init__(self, after):
        super().__init__()
        self.left = after
        self.lock = threading.Lock()

    def refuses(self):
        return self.left <= 0

    def pass_on(self, piece):
        with self.lock:
            passed = piece[:self.left]
            self.left -= len(passed)
            self.hits += len(passed) < len(piece)
        return passed


class At(Rule):
    """`act` is called once, when so many bytes were uploaded; nothing is withheld."""

    def __init__(self, after, act):
        super().__init__()
        self.left = after
        self.act = act
        self.lock = threading.Lock()

    def pass_on(self, piece):
        with self.lock:
            before = self.left
            self.left -= len(piece)
            if before > 0 >= self.left:
                self.act()
                self.hits += 1
        return piece


class Answers(Rule):
    """The server is not asked; the first `times` of those requests get this answer."""

    def __init__(self, status, code, of: Callable[[Request], bool] = anything, times=1 << 30):
        super().__init__()
        self.status, self.code, self.of, self.times = status, code, of, times

    def answer(self, request):
        if self.of(request) and self.hits < self.times:
            self.hits += 1
            body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{self.code}</Code><Message>of the test</Message></Error>'
            return self.status, body.encode()
        return None


class LosesTheAnswer(Rule):
    """The server does what it was asked, and who asked does not hear of it."""

    def __init__(self, of):
        super().__init__()
        self.of = of

    def loses_the_answer_to(self, request):
        self.hits += self.of(request)
        return self.of(request)


class HttpProxy:
    def __init__(self, port):
        self.server_port = port
        self.rule = Rule()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, contextlib.suppress(OSError):
            client.settimeout(60)
            if not self._answer(client, self.rule):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing it is a reset

    def _answer(self, client, rule):
        """False: the connection is to be reset."""
        if rule.refuses():
            return False
        request, rest = read_request(client)
        if request is None:
            return True
        length = int(request.headers.get("content-length", 0)) - len(rest)
        if "expect" in request.headers:
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        answer = rule.answer(request)
        if answer is not None:
            for _ in body_of(rest, client, length):
                pass
            return tell(client, request, *answer)
        with socket.create_connection(("127.0.0.1", self.server_port), timeout=60) as server:
            server.sendall(request.head)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may answer before it has read all
                for piece in body_of(rest, client, length):
                    passed = rule.pass_on(piece) if request.method != "GET" else piece
                    server.sendall(passed)
                    if len(passed) < len(piece):
                        return False
            if rule.loses_the_answer_to(request):
                while server.recv(PIECE):
                    pass
                return False
            while answer := server.recv(PIECE):
                client.sendall(answer)
        return True


def read_request(client):
    """(Request, what came of its body); None where nobody asks."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = client.recv(PIECE)
        if not piece:
            return None, b""
        received += piece
    head, rest = received.split(b"\r\n\r\n", 1)
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    kept = [first, *(line for line in lines if line.split(":", 1)[0].lower() not in ("expect", "connection")), "Connection: close"]
    return Request(method, target, headers, ("\r\n".join(kept) + "\r\n\r\n").encode("latin-1")), rest


def body_of(rest, client, length):
    """`rest` of it was read already, `length` bytes are still to come."""
    yield rest
    while length > 0:
        piece = client.recv(min(PIECE, length))
        if not piece:
            raise ConnectionResetError
        length -= len(piece)
        yield piece


def tell(client, request, status, body):
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    client.sendall(head.encode() + (b"" if request.method == "HEAD" else body))
    return True
