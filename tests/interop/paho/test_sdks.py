"""The habits of the Go and .NET SDKs, acted out."""

from stand import NOTIFIED_DELETE, STORE, TAIL, Case, moment, notified_set, notify_topic


class Go(Case):
    """It never subscribes to notifications, and hears its answers with no-local."""

    def go(self, client_id):
        topic = f"clients/{client_id.encode().hex().upper()}/{TAIL}/response"
        return self.join(client_id, response_topic=topic).hear_answers(no_local=True)

    def test_a_version_means_that_the_key_was_found(self):
        guest = self.go("go")
        missing = guest.ask("GET", "k")
        self.assertEqual((missing.payload, missing.version), (b"$-1\r\n", None))
        stored = guest.ask("SET", "k", "v")
        self.assertEqual(stored.payload, b"+OK\r\n")
        got = guest.ask("GET", "k")
        self.assertEqual((got.payload, got.version), (b"$1\r\nv\r\n", stored.version))
        for words, payload, version in (
            (["VDEL", "k", "w"], b":-1\r\n", stored.version),
            (["VDEL", "k", "v"], b":1\r\n", stored.version),
            (["VDEL", "k", "v"], b":0\r\n", None),
            (["DEL", "k"], b":0\r\n", None),
            (["GET", "k"], b"$-1\r\n", None),
        ):
            answer = guest.ask(*words)
            self.assertEqual((answer.payload, answer.version), (payload, version), words)

    def test_each_change_is_told_once_though_nobody_has_subscribed(self):
        guest, writer = self.go("go"), self.go("writer")
        self.assertEqual(guest.ask("KEYNOTIFY", "k").payload, b"+OK\r\n")
        expected = []
        for number in range(10):
            version = writer.ask("SET", "k", str(number)).version
            expected += [(notified_set(str(number)), version), (NOTIFIED_DELETE, version)]
            writer.ask("DEL", "k")
        told = guest.so_far()
        self.assertEqual([(message.payload, message.version) for message in told], expected)
        for message in told:
            self.assertEqual(message.topic, notify_topic(guest, "k"))
            self.assertEqual((message.qos, message.retain), (1, False))
            self.assertEqual(message.user_property("__protVer"), "1.0")
        self.assertEqual(writer.so_far(), [])

    def test_topics_are_in_upper_case_hexadecimal_digits(self):
        guest = self.go("guest-\u00ef\u00bf")
        key = bytes(range(256))
        guest.ask("KEYNOTIFY", key)
        guest.ask("SET", key, "v")
        told = guest.next()
        self.assertEqual(told.topic, notify_topic(guest, key))
        self.assertIn("/67756573742DC3AFC2BF/", told.topic)
        self.assertTrue(told.topic.endswith("FAFBFCFDFEFF"))

    def test_an_expiry_is_told_as_a_delete(self):
        guest = self.go("go")
        guest.ask("KEYNOTIFY", "k")
        version = guest.ask("SET", "k", "v", "PX", "100").version
        told = [guest.next(), guest.next()]
        expected = [(notified_set("v"), version), (NOTIFIED_DELETE, version)]
        self.assertEqual([(message.payload, message.version) for message in told], expected)
        self.assertEqual(guest.so_far(), [])


class DotNet(Case):
    """It subscribes to a filter that nothing ever matches, and has properties of its own."""

    def dotnet(self, client_id):
        guest = self.join(client_id, response_topic=f"clients/{client_id}/{TAIL}").hear_answers()
        self.assertEqual(guest.subscribe(f"clients/{STORE}/{client_id}/command/notify"), [1])
        return guest

    def test_each_change_is_told_once_in_spite_of_the_odd_filter(self):
        guest = self.dotnet("dotnet")
        guest.ask("KEYNOTIFY", "k", user=[("__invId", "dotnet")])
        versions = [guest.ask("SET", "k", value).version for value in ("1", "2")]
        # Those that came after the first answer came before the second one.
        told = [*guest.early, *guest.so_far()]
        self.assertEqual([message.payload for message in told], [notified_set("1"), notified_set("2")])
        self.assertEqual([message.version for message in told], versions)

    def test_a_set_that_is_not_applied_tells_of_the_stored_version(self):
        guest = self.dotnet("dotnet")
        stored = guest.ask("SET", "k", "v").version
        for condition in ("NX", "NEX"):
            answer = guest.ask("SET", "k", "w", condition, user=[("__invId", "dotnet")])
            self.assertEqual((answer.payload, answer.version), (b":-1\r\n", stored), condition)
        self.assertLess(stored[1], 2**31)

    def test_a_fraction_of_a_millisecond_is_cut_off(self):
        guest = self.dotnet("dotnet")
        guest.ask("KEYNOTIFY", "k")
        self.assertEqual(guest.ask("SET", "k", "v", "NX", "PX", "100.75").payload, b"+OK\r\n")
        self.assertEqual([guest.next().payload for _ in range(2)], [notified_set("v"), NOTIFIED_DELETE])
        for nothing in ("0", "0.9", "-1", "1e3", "", "NaN", "99999999999999999999999"):
            answer = guest.ask("SET", "k", "v", "PX", nothing)
            self.assertEqual(answer.payload, b"-ERR syntax error\r\n", nothing)

    def test_who_stops_watching_what_nobody_watched_is_told_zero(self):
        guest = self.dotnet("dotnet")
        self.assertEqual(guest.ask("KEYNOTIFY", "k", "STOP").payload, b":0\r\n")
        guest.ask("KEYNOTIFY", "k")
        self.assertEqual(guest.ask("KEYNOTIFY", "k", "STOP").payload, b"+OK\r\n")
        self.assertEqual(guest.ask("KEYNOTIFY", "k", "STOP").payload, b":0\r\n")
        guest.ask("SET", "k", "v")
        self.assertEqual(guest.so_far(), [])


class All(Case):
    """What they have in common."""

    def test_answers_go_to_topics_of_every_shape(self):
        for number, shape in enumerate((
            "clients/{id}/services/{tail}/response",
            "clients/{hex}/{tail}/response",
            "clients/{id}/{tail}",
            "clients/{id}/services/statestore/_any_/command/invoke/response",
            "$answers/{id}",
            "/{id}//",
        )):
            client_id = f"guest{number}"
            topic = shape.format(id=client_id, hex=client_id.encode().hex().upper(), tail=TAIL)
            guest = self.join(client_id, response_topic=topic).hear_answers(no_local=True)
            answer = guest.ask("GET", "k")
            self.assertEqual((answer.payload, answer.qos, answer.retain), (b"$-1\r\n", 1, False), shape)
            self.assertEqual(answer.content_type, "application/octet-stream")
            self.assertEqual(answer.user, [("__stat", "200"), ("__protVer", "1.0")])

    def test_who_asks_and_watches_hears_the_answer_first_and_all_once(self):
        # With and without a subscription to the notifications, and with two that overlap.
        for number, filters in enumerate(([], ["own"], ["own", "clients/statestore/#"])):
            guest, key = self.join(f"guest{number}").hear_answers(), f"k{number}"
            for topic_filter in filters:
                own = f"clients/{STORE}/{guest.hex}/command/notify/#"
                self.assertEqual(guest.subscribe(own if topic_filter == "own" else topic_filter), [1])
            # Twice is no more than once.
            for _ in range(2):
                self.assertEqual(guest.ask("KEYNOTIFY", key).payload, b"+OK\r\n")
            topics = [guest.response_topic, notify_topic(guest, key)]
            for words in (["SET", key, "v"], ["SET", key, "w"], ["DEL", key]):
                guest.send(*words)
                self.assertEqual([guest.next().topic for _ in range(2)], topics, words)
            self.assertEqual(guest.so_far(), [])

    def test_every_filter_below_the_stores_topics_is_granted(self):
        guest = self.join("guest")
        for topic_filter in ("clients/statestore/#", f"clients/{STORE}/#", f"clients/{STORE}/+/command/notify/+",
                             f"clients/{STORE}/any/thing", "clients/#", "#"):
            self.assertEqual(guest.subscribe(topic_filter), [1], topic_filter)

    def test_correlation_data_comes_back_whatever_its_length(self):
        guest = self.join("guest").hear_answers()
        for correlation in (b"\0", b"0123456789abcdef", bytes(range(256)), b"x" * 65_535):
            self.assertEqual(guest.ask("GET", "k", correlation=correlation).correlation, correlation)

    def test_refusals_are_as_published(self):
        guest = self.join("guest").hear_answers()
        skew = "ensure that the client and broker system clocks are synchronized"
        fenced = moment()
        self.assertEqual(guest.ask("SET", "fenced", "v", fence=fenced).payload, b"+OK\r\n")
        for text, words, options in (
            ("missing timestamp", ["SET", "k", "v"], {"ts": False}),
            ("malformed timestamp", ["SET", "k", "v"], {"ts": "yesterday"}),
            ("malformed timestamp", ["SET", "k", "v"], {"fence": "1:2"}),
            (f"the request timestamp is too far in the future; {skew}", ["SET", "k", "v"], {"ts": moment(120)}),
            (f"the request fencing token timestamp is too far in the future; {skew}", ["DEL", "k"],
             {"fence": moment(120)}),
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
            answer = guest.ask(*words, **options)
            self.assertEqual(answer.payload, f"-ERR {text}\r\n".encode(), (words, options))
            self.assertEqual((answer.user_property("__stat"), answer.version), ("200", None))

