"""Local TLS server certificate and HTTP CONNECT proxy, for tests of certificates and redirects.

The private key below is public, like this file; only tests trust its certificate, which is for
hub.invalid and 127.0.0.1.
"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEY = """\
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIA7SFPKQqhmocvU+HzFsoWTyDl8ZsgrPN/5p3HAfWFQ5oAoGCCqGSM49
AwEHoUQDQgAEs34TgHTNegp/2jfZ3reodYcpxWPcu3GS6oj1YfsDYZKNci8z5BC1
CnbdFq9r+E1xzfktIiKkt/lNPN6BBbDokQ==
-----END EC PRIVATE KEY-----
"""

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBbDCCAROgAwIBAgIBATAKBggqhkjOPQQDAjAWMRQwEgYDVQQDDAtodWIuaW52
YWxpZDAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowFjEUMBIGA1UE
AwwLaHViLmludmFsaWQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASzfhOAdM16
Cn/aN9net6h1hynFY9y7cZLqiPVh+wNhko1yLzPkELUKdt0Wr2v4TXHN+S0iIqS3
+U083oEFsOiRo1AwTjAPBgNVHRMBAf8EBTADAQH/MBwGA1UdEQQVMBOCC2h1Yi5p
bnZhbGlkhwR/AAABMB0GA1UdDgQWBBTld9Rr70NshX7JdeJ5mOymEyrM3TAKBggq
hkjOPQQDAgNHADBEAiAK3lqduPreshQ7VpColXLBN0SBMi3xEuuzyCCdmPN+UwIg
a1/uk7Rh9WLqWvJETDI+QQZHOwBCLmP4J6rI/AyHzBY=
-----END CERTIFICATE-----
"""


def server_context(folder: Path) -> ssl.SSLContext:
    """TLS context of a local server; writes `certificate.pem` and `key.pem` into the folder."""
    (folder / "certificate.pem").write_text(CERTIFICATE, encoding="utf-8")
    (folder / "key.pem").write_text(KEY, encoding="utf-8")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


class Proxy:
    """HTTP CONNECT proxy that connects every client to one local port, for any requested host."""

    def __init__(self, port: int, user: str = "", password: str = "") -> None:
        self.heads: list[str] = []  # request head of each client, unparsed
        self._port = port
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._required = f"Proxy-Authorization: Basic {secret}" if user else ""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listening]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.port = int(self._listening.getsockname()[1])

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # closed
            self._open.append(client)
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head and (piece := client.recv(1 << 12)):
            head += piece
        self.heads.append(head.decode("latin-1"))
        if self._required and self._required not in self.heads[-1]:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            client.close()
            return
        server = socket.create_connection(("127.0.0.1", self._port))
        self._open.append(server)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back = threading.Thread(target=_pump, args=(server, client))
        back.start()
        _pump(client, server)
        back.join()
        client.close()
        server.close()

    def close(self) -> None:
        """Close all sockets and join the threads."""
        for one in self._open:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed already
            finally:
                one.close()
        for thread in self._threads:
            thread.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while piece := source.recv(1 << 16):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return  # one side is gone


@contextmanager
def proxy(port: int, user: str = "", password: str = "") -> Iterator[Proxy]:
    """A proxy for one test."""
    made = Proxy(port, user, password)
    try:
        yield made
    finally:
        made.close()
