"""MQTT sessions: resumption, takeover, repeated deliveries, protocol errors."""

from harness import TIMEOUT_S, STORE, TAIL, StoreTestCase, Client, Relay, timestamp, notifications, notified_set


class Sessions(StoreTestCase):
    def relay(self):
        relay = Relay(self.server.port)
        self.addCleanup(relay.end)
        return relay

    def test_a_reconnect_resumes_the_session_but_not_the_watched_keys(self):
        relay = self.relay()
        client = Client(relay.port, "guest").subscribe_responses()
        self.addCleanup(client.disconnect)
        writer = self.connect("writer").subscribe_responses()
        self.assertFalse(client.session_present)
        client.request("KEYNOTIFY", "k")
        writer.request("SET", "k", "before")
        self.assertEqual(client.next().payload, notified_set("before"))
        # Unacknowledged messages are delivered again after the reconnect; from here on these can only be responses.
        self.assertEqual(client.pending(), [])
        relay.cut()
        # paho reconnects by itself and does not subscribe again.
        flags, _ = client.connacks.get(timeout=TIMEOUT_S)
        self.assertTrue(flags.session_present)
        writer.request("SET", "k", "after")
        self.assertEqual(client.request("GET", "k").payload, b"$5\r\nafter\r\n")
        self.assertEqual(notifications(client.early), [], "the key must be watched again after a reconnect")
        self.assertEqual(client.request("KEYNOTIFY", "k", "STOP").payload, b":0\r\n")
        self.assertEqual(client.request("KEYNOTIFY", "k").payload, b"+OK\r\n")
        writer.request("SET", "k", "again")
        self.assertEqual(client.next().payload, notified_set("again"))

    def test_a_lost_response_is_delivered_again_and_the_request_is_applied_once(self):
        relay = self.relay()
        client = Client(relay.port, "guest").subscribe_responses()
        self.addCleanup(client.disconnect)
        watcher = self.connect("watcher").subscribe_responses()
        watcher.request("KEYNOTIFY", "k")
        relay.drop_responses()
        correlation = client.send("SET", "k", "v", "NX")
        self.assertTrue(relay.has_dropped.wait(TIMEOUT_S))
        relay.cut()
        # paho sends the request again, with DUP; the store responds again, and the broker delivers the first response
        # again.
        responses = [client.next(), client.next()]
        for response in responses:
            self.assertEqual((response.payload, response.correlation), (b"+OK\r\n", correlation))
        self.assertEqual(responses[0].version, responses[1].version)
        self.assertEqual(client.pending(), [])
        self.assertEqual([notification.payload for notification in watcher.pending()], [notified_set("v")])

    def test_a_duplicate_request_is_applied_once(self):
        client = self.connect("guest").subscribe_responses()
        client.request("KEYNOTIFY", "k")
        for expiry_s in (10, 0, None):
            repeated = {"correlation": b"the same %r" % expiry_s, "ts": timestamp(), "expiry_s": expiry_s}
            first = client.request("SET", "k", "old", **repeated)
            client.next()
            client.request("SET", "k", "new")
            client.next()
            again = client.request("SET", "k", "old", **repeated)
            self.assertEqual((again.payload, again.version), (b"+OK\r\n", first.version))
            self.assertEqual(client.request("GET", "k").payload, b"$3\r\nnew\r\n")
            self.assertEqual(client.early, [])
        # Another request with the same correlation data is no duplicate.
        other = client.request("DEL", "k", correlation=b"the same 10")
        self.assertEqual(other.payload, b":1\r\n")

    def test_a_second_connection_with_the_client_id_takes_the_session_over(self):
        # With reconnects, paho would take the session over in turn.
        first = self.connect("guest", reconnects=False).subscribe_responses()
        first.request("KEYNOTIFY", "k")
        second = Client(self.server.port, "guest")
        self.addCleanup(second.disconnect)
        flags, reason = first.disconnects.get(timeout=TIMEOUT_S)
        self.assertEqual((flags.is_disconnect_packet_from_server, reason.value), (True, 0x8E))
        self.assertTrue(second.session_present)
        second.request("SET", "k", "v")
        self.assertEqual(notifications(second.early + second.pending()), [], "watched keys end with the connection")

    def test_a_response_topic_of_the_store_closes_the_connection(self):
        for number, topic in enumerate((TAIL, f"clients/{STORE}", f"clients/{STORE}/x/command/notify/6B")):
            client = self.connect(f"client{number}", reconnects=False)
            client.send("SET", "k", "v", properties={"ResponseTopic": topic})
            flags, reason = client.disconnects.get(timeout=TIMEOUT_S)
            self.assertTrue(flags.is_disconnect_packet_from_server and reason.is_failure, (topic, reason))
        other = self.connect("other").subscribe_responses()
        self.assertEqual(other.request("GET", "k").payload, b"$-1\r\n")

    def test_a_request_without_a_possible_response_is_not_applied_and_the_connection_stays(self):
        client = self.connect("guest").subscribe_responses()
        client.send("SET", "k", "v", properties={"ResponseTopic": None})
        client.send("SET", "k", "v", properties={"CorrelationData": None})
        client.send("SET", "k", "v", qos=0)
        client.send("SET", "k", "v", qos=2)
        self.assertEqual(client.request("GET", "k").payload, b"$-1\r\n")
        self.assertEqual(client.early, [])
        self.assertTrue(client.disconnects.empty())

    def test_a_forged_notification_is_not_delivered(self):
        client, forger = self.connect("guest").subscribe_responses(), self.connect("forger")
        client.subscribe("clients/statestore/#")
        client.request("KEYNOTIFY", "k")
        sent = forger.publish(f"clients/{STORE}/{client.hex}/command/notify/6B", notified_set("forged"))
        sent.wait_for_publish(TIMEOUT_S)
        self.assertTrue(sent.is_published())
        self.assertEqual(client.pending(), [])

    def test_a_message_that_expires_while_its_receiver_is_disconnected_is_not_delivered(self):
        relay = self.relay()
        away = Client(relay.port, "away")
        away.subscribe("to/away")
        away.abort()
        relay.cut()
        writer = self.connect("writer")
        for payload, expiry_s in (("short", 1), ("long", 1000), ("never", None)):
            properties = {} if expiry_s is None else {"MessageExpiryInterval": expiry_s}
            writer.publish("to/away", payload, **properties).wait_for_publish(TIMEOUT_S)
        # The expiry of a key shows that a second has passed by the server's clock.
        watcher = self.connect("watcher").subscribe_responses()
        watcher.request("KEYNOTIFY", "second")
        watcher.request("SET", "second", "v", "PX", "1100")
        for _ in range(2):
            watcher.next()
        back = Client(self.server.port, "away").subscribe_responses()
        self.addCleanup(back.disconnect)
        self.assertTrue(back.session_present)
        self.assertEqual([message.payload for message in back.pending()], [b"long", b"never"])

    def test_a_request_with_an_old_timestamp_is_accepted(self):
        client = self.connect("guest").subscribe_responses()
        response = client.request("SET", "k", "v", ts="1:0:guest")
        self.assertEqual(response.payload, b"+OK\r\n")
        self.assertGreater(response.version[0], 1_000_000_000_000)
        self.assertEqual(response.version[2], "StateStore")

    def test_a_ping_is_answered_at_once(self):
        # The Rust SDK waits for two seconds at most.
        self.assertTrue(self.connect("guest").subscribe_responses().is_pinged())
