"""The least that can create pods: bytes made beforehand over kept TLS connections, one process each."""
import multiprocessing
import socket
import ssl


def post_all(address, pki, requests):
    context = ssl.create_default_context(cafile=f"{pki}/ca.crt")
    context.load_cert_chain(f"{pki}/admin.crt", f"{pki}/admin.key")
    plain = socket.create_connection(address, timeout=60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with context.wrap_socket(plain, server_hostname=address[0]) as connection:
        answers = connection.makefile("rb")
        for request in requests:
            connection.sendall(request)
            status = answers.readline()
            if b" 201 " not in status:
                raise SystemExit(f"bare client: {status!r}")
            length, chunked = 0, False
            while (line := answers.readline().lower()) != b"\r\n":
                if line.startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                chunked = chunked or line.startswith(b"transfer-encoding: chunked")
            while chunked and (size := int(answers.readline(), 16)):
                answers.read(size + 2)
            answers.readline() if chunked else answers.read(length)


def post(address, pki, path, bodies, connections):
    """Creates all of them; the caller takes the time."""
    requests = [f"POST {path} HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
    workers = [multiprocessing.Process(target=post_all, args=(address, pki, requests[i::connections])) for i in range(connections)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise SystemExit("the bare client failed")
