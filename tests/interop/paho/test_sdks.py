"""Clients that behave like the Go and .NET SDKs."""

from harness import NOTIFIED_DELETE, STORE, TAIL, StoreTestCase, timestamp, notified_set, notify_topic


class Go(StoreTestCase):
    """The Go SDK never subscribes to notifications, and to its responses with No Local."""

    def go(self, client_id):
        topic = f"clients/{client_id.encode().hex().upper()}/{TAIL}/response"
        return self.connect(client_id, response_topic=topic).subscribe_responses(no_local=True)

    def test_a_response_has_a_version_only_if_the_key_exists(self):
        client = self.go("go")
        missing = client.request("GET", "k")
        self.assertEqual((missing.payload, missing.version), (b"$-1\r\n", None))
        stored = client.request("SET", "k", "v")
        self.assertEqual(stored.payload, b"+OK\r\n")
        got = client.request("GET", "k")
        self.assertEqual((got.payload, got.version), (b"$1\r\nv\r\n", stored.version))
        for words, payload, version in (
            (["VDEL", "k", "w"], b":-1\r\n", stored.version),
            (["VDEL", "k", "v"], b":1\r\n", stored.version),
            (["VDEL", "k", "v"], b":0\r\n", None),
            (["DEL", "k"], b":0\r\n", None),
            (["GET", "k"], b"$-1\r\n", None),
        ):
            response = client.request(*words)
            self.assertEqual((response.payload, response.version), (payload, version), words)

    def test_each_change_is_notified_once_without_a_subscription(self):
        client, writer = self.go("go"), self.go("writer")
        self.assertEqual(client.request("KEYNOTIFY", "k").payload, b"+OK\r\n")
        expected = []
        for number in range(10):
            version = writer.request("SET", "k", str(number)).version
            expected += [(notified_set(str(number)), version), (NOTIFIED_DELETE, version)]
            writer.request("DEL", "k")
        notified = client.pending()
        self.assertEqual([(message.payload, message.version) for message in notified], expected)
        for message in notified:
            self.assertEqual(message.topic, notify_topic(client, "k"))
            self.assertEqual((message.qos, message.retain), (1, False))
            self.assertEqual(message.user_property("__protVer"), "1.0")
        self.assertEqual(writer.pending(), [])

    def test_notification_topics_have_upper_case_hexadecimal_digits(self):
        client = self.go("guest-\u00ef\u00bf")
        key = bytes(range(256))
        client.request("KEYNOTIFY", key)
        client.request("SET", key, "v")
        notification = client.next()
        self.assertEqual(notification.topic, notify_topic(client, key))
        self.assertIn("/67756573742DC3AFC2BF/", notification.topic)
        self.assertTrue(notification.topic.endswith("FAFBFCFDFEFF"))

    def test_an_expiry_is_notified_as_a_delete(self):
        client = self.go("go")
        client.request("KEYNOTIFY", "k")
        version = client.request("SET", "k", "v", "PX", "100").version
        messages = [client.next(), client.next()]
        expected = [(notified_set("v"), version), (NOTIFIED_DELETE, version)]
        self.assertEqual([(message.payload, message.version) for message in messages], expected)
        self.assertEqual(client.pending(), [])


class DotNet(StoreTestCase):
    """The .NET SDK subscribes to a filter that no notification matches, and sends a user property `__invId`."""

    def dotnet(self, client_id):
        client = self.connect(client_id, response_topic=f"clients/{client_id}/{TAIL}").subscribe_responses()
        self.assertEqual(client.subscribe(f"clients/{STORE}/{client_id}/command/notify"), [1])
        return client

    def test_each_change_is_notified_once_despite_the_unmatched_filter(self):
        client = self.dotnet("dotnet")
        client.request("KEYNOTIFY", "k", user=[("__invId", "dotnet")])
        versions = [client.request("SET", "k", value).version for value in ("1", "2")]
        # Notifications between the two responses are in `early`.
        notified = [*client.early, *client.pending()]
        self.assertEqual([message.payload for message in notified], [notified_set("1"), notified_set("2")])
        self.assertEqual([message.version for message in notified], versions)

    def test_a_set_that_is_not_applied_returns_the_stored_version(self):
        client = self.dotnet("dotnet")
        stored = client.request("SET", "k", "v").version
        for condition in ("NX", "NEX"):
            response = client.request("SET", "k", "w", condition, user=[("__invId", "dotnet")])
            self.assertEqual((response.payload, response.version), (b":-1\r\n", stored), condition)
        self.assertLess(stored[1], 2**31)

    def test_fractions_of_a_millisecond_are_truncated(self):
        client = self.dotnet("dotnet")
        client.request("KEYNOTIFY", "k")
        self.assertEqual(client.request("SET", "k", "v", "NX", "PX", "100.75").payload, b"+OK\r\n")
        self.assertEqual([client.next().payload for _ in range(2)], [notified_set("v"), NOTIFIED_DELETE])
        for nothing in ("0", "0.9", "-1", "1e3", "", "NaN", "99999999999999999999999"):
            response = client.request("SET", "k", "v", "PX", nothing)
            self.assertEqual(response.payload, b"-ERR syntax error\r\n", nothing)

    def test_keynotify_stop_of_an_unwatched_key_returns_zero(self):
        client = self.dotnet("dotnet")
        self.assertEqual(client.request("KEYNOTIFY", "k", "STOP").payload, b":0\r\n")
        client.request("KEYNOTIFY", "k")
        self.assertEqual(client.request("KEYNOTIFY", "k", "STOP").payload, b"+OK\r\n")
        self.assertEqual(client.request("KEYNOTIFY", "k", "STOP").payload, b":0\r\n")
        client.request("SET", "k", "v")
        self.assertEqual(client.pending(), [])


class All(StoreTestCase):
    """Behavior that all SDKs rely on."""

    def test_responses_go_to_the_response_topics_of_every_sdk(self):
        for number, shape in enumerate((
            "clients/{id}/services/{tail}/response",
            "clients/{hex}/{tail}/response",
            "clients/{id}/{tail}",
            "clients/{id}/services/statestore/_any_/command/invoke/response",
            "$answers/{id}",
            "/{id}//",
        )):
            client_id = f"client{number}"
            topic = shape.format(id=client_id, hex=client_id.encode().hex().upper(), tail=TAIL)
            client = self.connect(client_id, response_topic=topic).subscribe_responses(no_local=True)
            response = client.request("GET", "k")
            self.assertEqual((response.payload, response.qos, response.retain), (b"$-1\r\n", 1, False), shape)
            self.assertEqual(response.content_type, "application/octet-stream")
            self.assertEqual(response.user, [("__stat", "200"), ("__protVer", "1.0")])

    def test_a_response_precedes_its_notification_and_each_is_delivered_once(self):
        # With and without a subscription to the notifications, and with two that overlap.
        for number, filters in enumerate(([], ["own"], ["own", "clients/statestore/#"])):
            client, key = self.connect(f"client{number}").subscribe_responses(), f"k{number}"
            for topic_filter in filters:
                own = f"clients/{STORE}/{client.hex}/command/notify/#"
                self.assertEqual(client.subscribe(own if topic_filter == "own" else topic_filter), [1])
            # Watching a key twice has no further effect.
            for _ in range(2):
                self.assertEqual(client.request("KEYNOTIFY", key).payload, b"+OK\r\n")
            topics = [client.response_topic, notify_topic(client, key)]
            for words in (["SET", key, "v"], ["SET", key, "w"], ["DEL", key]):
                client.send(*words)
                self.assertEqual([client.next().topic for _ in range(2)], topics, words)
            self.assertEqual(client.pending(), [])

    def test_every_filter_that_covers_the_stores_topics_is_granted(self):
        client = self.connect("guest")
        for topic_filter in ("clients/statestore/#", f"clients/{STORE}/#", f"clients/{STORE}/+/command/notify/+",
                             f"clients/{STORE}/any/thing", "clients/#", "#"):
            self.assertEqual(client.subscribe(topic_filter), [1], topic_filter)

    def test_correlation_data_of_any_length_is_returned(self):
        client = self.connect("guest").subscribe_responses()
        for correlation in (b"\0", b"0123456789abcdef", bytes(range(256)), b"x" * 65_535):
            self.assertEqual(client.request("GET", "k", correlation=correlation).correlation, correlation)

    def test_error_replies_have_the_documented_texts(self):
        client = self.connect("guest").subscribe_responses()
        skew = "ensure that the client and broker system clocks are synchronized"
        fenced = timestamp()
        self.assertEqual(client.request("SET", "fenced", "v", fence=fenced).payload, b"+OK\r\n")
        for text, words, options in (
            ("missing timestamp", ["SET", "k", "v"], {"ts": False}),
            ("malformed timestamp", ["SET", "k", "v"], {"ts": "yesterday"}),
            ("malformed timestamp", ["SET", "k", "v"], {"fence": "1:2"}),
            (f"the request timestamp is too far in the future; {skew}", ["SET", "k", "v"], {"ts": timestamp(120)}),
            (f"the request fencing token timestamp is too far in the future; {skew}", ["DEL", "k"],
             {"fence": timestamp(120)}),
            ("a fencing token is required for this request", ["DEL", "fenced"], {}),
            ("the request fencing token is a lower version than the fencing token protecting the resource",
             ["VDEL", "fenced", "v"], {"fence": "1:0:guest"}),
            ("the key length is zero", ["GET", ""], {}),
            ("unknown command", ["MGET", "k"], {}),
            ("unknown command", ["get", "k"], {}),
            ("wrong number of arguments", ["GET", "k", "l"], {}),
            ("syntax error", ["SET", "k", "v", "PX"], {}),
            ("syntax error", [], {"payload": b"GET k\r\n"}),
            ("syntax error", [], {"payload": b"*2\r\n$3\r\nGET\r\n$18446744073709551615\r\n1"}),
            ("syntax error", [], {"payload": b"*2\r\n$3\r\nGET\r\n$\r\n\r\n"}),
        ):
            response = client.request(*words, **options)
            self.assertEqual(response.payload, f"-ERR {text}\r\n".encode(), (words, options))
            self.assertEqual((response.user_property("__stat"), response.version), ("200", None))

