"""Fixtures of the tests with paho-mqtt: a server, a relay in front of it, and a client that encodes requests itself."""

import os
import pathlib
import queue
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import uuid

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

STORE = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8"
TAIL = STORE + "/command/invoke"
# Far longer than any step of a test takes.
TIMEOUT_S = 30


class StoreTestCase(unittest.TestCase):
    """A test with its own server."""

    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.end)

    def connect(self, client_id, **options):
        client = Client(self.server.port, client_id, **options)
        self.addCleanup(client.disconnect)
        return client


class Server:
    """A running `mqkv serve` on a free port."""

    def __init__(self, *options):
        here = pathlib.Path(__file__).parent
        binary = pathlib.Path(os.environ.get("MQKV_BIN", here / "../../../target/debug/mqkv")).resolve()
        self._folder = tempfile.TemporaryDirectory()
        port_file = pathlib.Path(self._folder.name, "port")
        words = [binary, "serve", "--quiet", "--listen", "127.0.0.1:0", "--port-file", port_file, *options]
        environment = {"HOME": self._folder.name}
        self._process = subprocess.Popen(words, cwd=self._folder.name, env=environment, stdin=subprocess.DEVNULL)
        begun = time.monotonic()
        while not port_file.exists() or not port_file.read_text().endswith("\n"):
            assert self._process.poll() is None, "mqkv serve has exited"
            assert time.monotonic() - begun < TIMEOUT_S, "mqkv serve writes no port file"
            time.sleep(0.005)
        self.port = int(port_file.read_text())

    def end(self):
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


class Relay:
    """A TCP relay in front of a broker that can close its connections and drop responses."""

    def __init__(self, broker_port):
        self._broker_port = broker_port
        self._drops_responses = False
        self._sockets = []
        self._lock = threading.Lock()
        self.has_dropped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def drop_responses(self):
        """Drops everything from the broker until `cut`."""
        self.has_dropped.clear()
        self._drops_responses = True

    def cut(self):
        """Closes all connections. New ones forward everything."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for end in sockets:
            self._close(end)
        self._drops_responses = False

    def end(self):
        self._close(self._listener)
        self.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._broker_port))
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [client, broker]
            for ends in ((client, broker, False), (broker, client, True)):
                threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source, target, is_response):
        try:
            while data := source.recv(65536):
                if is_response and self._drops_responses:
                    self.has_dropped.set()
                else:
                    target.sendall(data)
        except OSError:
            pass
        self._close(source)
        self._close(target)

    @staticmethod
    def _close(end):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        end.close()


class Message:
    """A received message."""

    def __init__(self, message):
        self.topic = message.topic
        self.payload = message.payload
        self.qos = message.qos
        self.retain = message.retain
        properties = message.properties
        self.correlation = getattr(properties, "CorrelationData", None)
        self.content_type = getattr(properties, "ContentType", None)
        self.user = getattr(properties, "UserProperty", [])

    def __repr__(self):
        return f"{self.topic} {self.payload!r} {self.user}"

    def user_property(self, name):
        return dict(self.user).get(name)

    @property
    def version(self):
        """The parts of `__ts`: milliseconds, counter, node."""
        text = self.user_property("__ts")
        if text is None:
            return None
        ms, counter, node = text.split(":")
        return int(ms), int(counter), node


class Client:
    """A client that encodes requests itself. Its session never expires, like the sessions of the SDKs."""

    def __init__(self, port, client_id, response_topic=None, reconnects=True):
        self.client_id = client_id
        self.hex = client_id.encode().hex().upper()
        self.response_topic = response_topic or f"clients/{client_id}/services/{TAIL}/response"
        self.messages = queue.Queue()
        self.connacks = queue.Queue()
        self.disconnects = queue.Queue()
        self._granted = queue.Queue()
        self._mqtt = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv5)
        self._mqtt.on_connect = lambda client, data, flags, reason, properties: self.connacks.put((flags, reason))
        self._mqtt.on_message = lambda client, data, message: self.messages.put(Message(message))
        self._mqtt.on_subscribe = lambda client, data, mid, reasons, properties: self._granted.put(reasons)
        self._mqtt.on_disconnect = self._handle_disconnect
        self._reconnects = reconnects
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 0xFFFFFFFF
        properties.UserProperty = [("metriccategory", "aiosdk-test")]
        self._mqtt.connect("127.0.0.1", port, keepalive=60, clean_start=False, properties=properties)
        self._mqtt.loop_start()
        flags, reason = self.connacks.get(timeout=TIMEOUT_S)
        assert not reason.is_failure, reason
        self.session_present = flags.session_present

    def _handle_disconnect(self, client, data, flags, reason, properties):
        self.disconnects.put((flags, reason))
        if not self._reconnects:
            client.disconnect()

    def subscribe_responses(self, no_local=False):
        """Subscribes to the response topic."""
        assert self.subscribe(self.response_topic, no_local) == [1]
        return self

    def subscribe(self, topic_filter, no_local=False):
        """Subscribes with QoS 1 and returns the reason codes."""
        self._mqtt.subscribe(topic_filter, options=SubscribeOptions(qos=1, noLocal=no_local))
        return [reason.value for reason in self._granted.get(timeout=TIMEOUT_S)]

    def publish(self, topic, payload, qos=1, **properties):
        """Publishes and returns paho's MQTTMessageInfo. Properties have paho's names."""
        given = Properties(PacketTypes.PUBLISH)
        for name, value in properties.items():
            setattr(given, name, value)
        return self._mqtt.publish(topic, payload, qos=qos, properties=given)

    def send(self, *words, payload=None, correlation=None, ts=True, fence=None, user=(), expiry_s=10, **more):
        """Sends a request without waiting for the response. Returns its correlation data."""
        correlation = uuid.uuid4().bytes if correlation is None else correlation
        user = [("__srcId", self.client_id), ("__protVer", "1.0"), *user]
        if ts:
            user.append(("__ts", timestamp() if ts is True else ts))
        if fence:
            user.append(("__ft", fence))
        properties = {
            "ContentType": "application/octet-stream",
            "CorrelationData": correlation,
            "MessageExpiryInterval": expiry_s,
            "ResponseTopic": self.response_topic,
            "UserProperty": user,
        }
        properties |= more.pop("properties", {})
        properties = {name: value for name, value in properties.items() if value is not None}
        self.publish(TAIL, frame(words) if payload is None else payload, **more, **properties)
        return correlation

    def request(self, *words, **options):
        """Sends a request and waits for the response. Messages that arrive before it are in `early`."""
        correlation = self.send(*words, **options)
        self.early = []
        while True:
            message = self.next()
            if message.correlation == correlation and message.topic == self.response_topic:
                return message
            self.early.append(message)

    def next(self):
        """Waits for the next message."""
        return self.messages.get(timeout=TIMEOUT_S)

    def pending(self):
        """Returns all unread messages, by sending one more request, whose response arrives after them."""
        self.request("GET", "nothing")
        return self.early

    def is_pinged(self):
        """Sends PINGREQ; returns whether PINGRESP arrives before the response to a later request."""
        answered = threading.Event()
        handle = self._mqtt._handle_pingresp
        # Not by _ping_t, which this thread sets after it has sent PINGREQ: the PINGRESP may have been handled before.
        self._mqtt._handle_pingresp = lambda: answered.set() or handle()
        self._mqtt._send_pingreq()
        self.request("GET", "nothing")
        return answered.is_set()

    def disconnect(self):
        """Disconnects and ends the session."""
        properties = Properties(PacketTypes.DISCONNECT)
        properties.SessionExpiryInterval = 0
        self._mqtt.disconnect(properties=properties)
        self._mqtt.loop_stop()

    def abort(self):
        """Closes the connection without DISCONNECT, so that the session continues."""
        self._mqtt.loop_stop()
        self._mqtt.socket().close()


def timestamp(ahead_s=0, node="guest"):
    """A timestamp of a hybrid logical clock."""
    return f"{int((time.time() + ahead_s) * 1000):015}:00000:{node}"


def bulk(word):
    word = word.encode() if isinstance(word, str) else word
    return b"$%d\r\n%s\r\n" % (len(word), word)


def frame(words):
    return b"*%d\r\n" % len(words) + b"".join(bulk(word) for word in words)


def notified_set(value):
    return frame(["NOTIFY", "SET", "VALUE", value])


NOTIFIED_DELETE = frame(["NOTIFY", "DELETE"])


def notifications(messages):
    """Keeps the notifications: a response whose acknowledgement was lost may be delivered again among them."""
    return [message for message in messages if message.topic.startswith("clients/statestore/")]


def notify_topic(client, key):
    key = key.encode() if isinstance(key, str) else key
    return f"clients/{STORE}/{client.hex}/command/notify/{key.hex().upper()}"
