"""A server that answers what kubectl asks the API server of a cluster for: a configmap, a token, and a port that is forwarded.

Usage: apiserver.py CA_FILE TOKEN_FILE BROKER_PORT. It prints its port. The ports of the pod lead to BROKER_PORT; forwarding is SPDY/3.1, which
all versions of kubectl speak, newer ones if the server refuses a WebSocket. A line on standard input ends all forwards.
"""

import json
import socket
import struct
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CA, TOKEN = (open(name).read() for name in sys.argv[1:3])
BROKER = ("127.0.0.1", int(sys.argv[3]))
NAMESPACE = "/api/v1/namespaces/azure-iot-operations"
POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "aio-broker-0", "namespace": "azure-iot-operations", "labels": {"app": "broker"}},
    "spec": {"containers": [{"name": "broker", "ports": [{"containerPort": 18883}]}]},
    "status": {"phase": "Running"},
}
KINDS = {"configmaps": "ConfigMap", "services": "Service", "pods": "Pod", "serviceaccounts": "ServiceAccount"}
ANSWERS = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": name, "singularName": name[:-1], "namespaced": True, "kind": kind, "verbs": ["get", "list"]}
            for name, kind in KINDS.items()
        ],
    },
    NAMESPACE + "/configmaps/azure-iot-operations-aio-ca-trust-bundle": {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "azure-iot-operations-aio-ca-trust-bundle"},
        "data": {"ca.crt": CA},
    },
    NAMESPACE + "/services/aio-broker": {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": "aio-broker", "namespace": "azure-iot-operations"},
        "spec": {"clusterIP": "10.0.0.1", "selector": {"app": "broker"}, "ports": [{"port": 18883, "targetPort": 18883}]},
    },
    NAMESPACE + "/pods": {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [POD]},
    NAMESPACE + "/pods/aio-broker-0": POD,
}
FORWARDS = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, content):
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, code, reason, message):
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        kind, name = self.path.split("?")[0].split("/")[-2:]
        details = {"kind": kind, "name": name, "causes": [{"message": message}]}
        self.answer(code, {**status, "reason": reason, "code": code, "message": message, "details": details})

    def do_GET(self):
        path = self.path.split("?")[0]
        if path.endswith("/portforward"):
            self.refuse(400, "BadRequest", "no WebSockets")
        elif path in ANSWERS:
            self.answer(200, ANSWERS[path])
        else:
            kind, name = path.split("/")[-2:]
            self.refuse(404, "NotFound", f'{kind} "{name}" not found')

    def do_POST(self):
        path = self.path.split("?")[0]
        request = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == NAMESPACE + "/serviceaccounts/default/token" and b"aio-internal" in request:
            status = {"token": TOKEN, "expirationTimestamp": "2100-01-01T00:00:00Z"}
            self.answer(201, {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "status": status})
        elif path.endswith("/serviceaccounts/denied/token"):
            what = 'cannot create resource "serviceaccounts/token" in API group "" in the namespace "azure-iot-operations"'
            self.refuse(403, "Forbidden", f'serviceaccounts "denied" is forbidden: User "ann" {what}')
        elif path == NAMESPACE + "/pods/aio-broker-0/portforward":
            self.send_response(101)
            for name, value in [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "portforward.k8s.io")]:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.flush()
            self.close_connection = True
            try:
                Forward(self.connection, self.rfile).run()
            except OSError:
                pass
        else:
            self.refuse(404, "NotFound", "not found")


def dictionary():
    """The dictionary with which SPDY/3 compresses headers (2.6.10.1)."""
    names = """options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow
        authorization cache-control connection content-base content-encoding content-language content-length content-location
        content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match if-range
        if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer
        retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get status
        200_OK version HTTP/1.1 url public set-cookie keep-alive origin""".split()
    codes = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    phrases = "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    phrases += "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    dates = "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    types = "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,public"
    rest = "privatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
    words = [name.replace("_", " ").encode() for name in names]
    lengths = b"".join(struct.pack(">I", len(word)) + word for word in words)
    return lengths + (codes + phrases + dates + types + rest).encode()


class Forward:
    """One upgraded connection: each forwarded connection is a stream for data and one for errors."""

    def __init__(self, connection, source):
        self.connection, self.source, self.lock = connection, source, threading.Lock()
        self.deflate = zlib.compressobj(9, zlib.DEFLATED, 15, 8, 0, dictionary())
        self.inflate = zlib.decompressobj(zdict=dictionary())
        self.brokers = {}
        FORWARDS.append(connection)

    def send(self, frame):
        with self.lock:
            self.connection.sendall(frame)

    def send_data(self, stream, content, is_last=False):
        self.send(struct.pack(">II", stream, int(is_last) << 24 | len(content)) + content)

    def run(self):
        while len(head := self.source.read(8)) == 8:
            first, second = struct.unpack(">II", head)
            payload = self.source.read(second & 0xFFFFFF)
            if first == 0x80030001:
                self.open(struct.unpack(">I", payload[:4])[0], self.headers(payload[10:]))
            elif first == 0x80030006:
                self.send(head + payload)
            elif first < 0x80000000 and first in self.brokers:
                self.forward(first, payload, second >> 24 & 1)
        for broker in self.brokers.values():
            broker.close()

    def headers(self, compressed):
        content = self.inflate.decompress(compressed)
        texts, at = [], 4
        while at < len(content):
            end = at + 4 + struct.unpack(">I", content[at : at + 4])[0]
            texts.append(content[at + 4 : end].decode())
            at = end
        return dict(zip(texts[::2], texts[1::2]))

    def open(self, stream, headers):
        with self.lock:
            block = self.deflate.compress(struct.pack(">I", 0)) + self.deflate.flush(zlib.Z_SYNC_FLUSH)
            self.connection.sendall(struct.pack(">III", 0x80030002, 4 + len(block), stream) + block)
        if headers["streamtype"] == "error":
            self.errors = stream
            return
        self.send_data(self.errors, b"", True)
        self.brokers[stream] = socket.create_connection(BROKER)
        threading.Thread(target=self.answer, args=(stream,), daemon=True).start()

    def forward(self, stream, payload, is_last):
        self.brokers[stream].sendall(payload)
        if payload:
            # The window of the sender is as large as before.
            self.send(struct.pack(">IIII", 0x80030009, 8, stream, len(payload)))
        if is_last:
            self.brokers[stream].shutdown(socket.SHUT_WR)

    def answer(self, stream):
        try:
            while content := self.brokers[stream].recv(16384):
                self.send_data(stream, content)
            self.send_data(stream, b"", True)
        except OSError:
            pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
for _ in sys.stdin:
    for connection in FORWARDS:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
    FORWARDS.clear()
