"""An application: switches the heating of a line on if the line is colder than its set point, and off otherwise.

It sends requests to the state store with paho-mqtt. The broker is that of the variables of the official SDKs:
AIO_BROKER_HOSTNAME and AIO_BROKER_TCP_PORT.
"""

import os
import queue
import time
import uuid

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

REQUESTS = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke"
TIMEOUT_S = 10


class StateStore:
    def __init__(self, host, port):
        self._id = f"application-{uuid.uuid4().hex[:8]}"
        self._responses = queue.Queue()
        self._subscribed = queue.Queue()
        self._topic = f"clients/{self._id}/services/{REQUESTS}/response"
        self._mqtt = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=self._id, protocol=mqtt.MQTTv5)
        self._mqtt.on_message = lambda client, data, message: self._responses.put(message)
        self._mqtt.on_subscribe = lambda client, data, mid, reasons, properties: self._subscribed.put(reasons)
        self._mqtt.on_connect = lambda client, *_: client.subscribe(self._topic, qos=1)
        self._mqtt.connect(host, port)
        self._mqtt.loop_start()
        self._subscribed.get(timeout=TIMEOUT_S)

    def get(self, key):
        """Returns the value of a key; None if the key does not exist."""
        reply = self._request(b"GET", key.encode())
        return None if reply == b"$-1\r\n" else reply.split(b"\r\n", 1)[1][:-2]

    def set(self, key, value):
        reply = self._request(b"SET", key.encode(), value)
        if reply != b"+OK\r\n":
            raise RuntimeError(f"{key} was not set: {reply!r}")

    def close(self):
        self._mqtt.disconnect()
        self._mqtt.loop_stop()

    def _request(self, *words):
        payload = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        properties = Properties(PacketTypes.PUBLISH)
        properties.ResponseTopic = self._topic
        properties.CorrelationData = uuid.uuid4().bytes
        properties.MessageExpiryInterval = TIMEOUT_S
        # The store refuses a write of a client whose clock differs from its own by more than a minute.
        properties.UserProperty = [("__ts", f"{int(time.time() * 1000):015}:00000:{self._id}"), ("__protVer", "1.0")]
        self._mqtt.publish(REQUESTS, payload, qos=1, properties=properties)
        while True:
            response = self._responses.get(timeout=TIMEOUT_S)
            if response.properties.CorrelationData == properties.CorrelationData:
                break
        if response.payload.startswith(b"-ERR"):
            raise RuntimeError(response.payload.decode())
        return response.payload


def main():
    store = StateStore(os.environ["AIO_BROKER_HOSTNAME"], int(os.environ["AIO_BROKER_TCP_PORT"]))
    temperature, setpoint = float(store.get("line1/temp")), float(store.get("line1/setpoint"))
    heating = b"on" if temperature < setpoint else b"off"
    store.set("line1/heating", heating)
    print(f"{temperature} of {setpoint} degrees: the heating is {heating.decode()}")
    store.close()


if __name__ == "__main__":
    main()
