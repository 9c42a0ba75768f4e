"""What MQTT itself must do for the store: sessions, take-over, repeated deliveries, what ends a connection."""

from stand import PATIENCE_S, STORE, TAIL, Case, Guest, Line, moment, notifications, notified_set


class Sessions(Case):
    def line(self):
        line = Line(self.store.port)
        self.addCleanup(line.end)
        return line

    def test_a_session_is_kept_over_a_reconnect_and_a_registration_is_not(self):
        line = self.line()
        guest = Guest(line.port, "guest").hear_answers()
        self.addCleanup(guest.leave)
        writer = self.join("writer").hear_answers()
        self.assertFalse(guest.session_present)
        guest.ask("KEYNOTIFY", "k")
        writer.ask("SET", "k", "before")
        self.assertEqual(guest.next().payload, notified_set("before"))
        # What it has not acknowledged would come again; of that, only an answer can be left after this.
        self.assertEqual(guest.so_far(), [])
        line.cut()
        # It comes back by itself, and does not subscribe again.
        flags, _ = guest.connacks.get(timeout=PATIENCE_S)
        self.assertTrue(flags.session_present)
        writer.ask("SET", "k", "after")
        self.assertEqual(guest.ask("GET", "k").payload, b"$5\r\nafter\r\n")
        self.assertEqual(notifications(guest.early), [], "whoever was cut off must register again")
        self.assertEqual(guest.ask("KEYNOTIFY", "k", "STOP").payload, b":0\r\n")
        self.assertEqual(guest.ask("KEYNOTIFY", "k").payload, b"+OK\r\n")
        writer.ask("SET", "k", "again")
        self.assertEqual(guest.next().payload, notified_set("again"))

    def test_an_answer_that_was_lost_with_the_line_comes_again_and_the_request_is_applied_once(self):
        line = self.line()
        guest = Guest(line.port, "guest").hear_answers()
        self.addCleanup(guest.leave)
        watcher = self.join("watcher").hear_answers()
        watcher.ask("KEYNOTIFY", "k")
        line.lose_answers()
        correlation = guest.send("SET", "k", "v", "NX")
        self.assertTrue(line.has_lost.wait(PATIENCE_S))
        line.cut()
        # paho sends the request again, with DUP; the store answers it again, and the broker delivers the first answer
        # again.
        answers = [guest.next(), guest.next()]
        for answer in answers:
            self.assertEqual((answer.payload, answer.correlation), (b"+OK\r\n", correlation))
        self.assertEqual(answers[0].version, answers[1].version)
        self.assertEqual(guest.so_far(), [])
        self.assertEqual([told.payload for told in watcher.so_far()], [notified_set("v")])

    def test_a_request_that_comes_twice_is_applied_once(self):
        guest = self.join("guest").hear_answers()
        guest.ask("KEYNOTIFY", "k")
        for expiry_s in (10, 0, None):
            repeated = {"correlation": b"the same %r" % expiry_s, "ts": moment(), "expiry_s": expiry_s}
            first = guest.ask("SET", "k", "old", **repeated)
            guest.next()
            guest.ask("SET", "k", "new")
            guest.next()
            again = guest.ask("SET", "k", "old", **repeated)
            self.assertEqual((again.payload, again.version), (b"+OK\r\n", first.version))
            self.assertEqual(guest.ask("GET", "k").payload, b"$3\r\nnew\r\n")
            self.assertEqual(guest.early, [])
        # Another request may have the same correlation data.
        other = guest.ask("DEL", "k", correlation=b"the same 10")
        self.assertEqual(other.payload, b":1\r\n")

    def test_who_comes_with_the_same_client_id_takes_the_session_over(self):
        # paho would come back and take it over in turn.
        first = self.join("guest", comes_back=False).hear_answers()
        first.ask("KEYNOTIFY", "k")
        second = Guest(self.store.port, "guest")
        self.addCleanup(second.leave)
        flags, reason = first.ends.get(timeout=PATIENCE_S)
        self.assertEqual((flags.is_disconnect_packet_from_server, reason.value), (True, 0x8E))
        self.assertTrue(second.session_present)
        second.ask("SET", "k", "v")
        self.assertEqual(notifications(second.early + second.so_far()), [], "the registration went with the connection")

    def test_a_response_topic_of_the_stores_own_ends_the_connection(self):
        for number, topic in enumerate((TAIL, f"clients/{STORE}", f"clients/{STORE}/x/command/notify/6B")):
            guest = self.join(f"guest{number}", comes_back=False)
            guest.send("SET", "k", "v", properties={"ResponseTopic": topic})
            flags, reason = guest.ends.get(timeout=PATIENCE_S)
            self.assertTrue(flags.is_disconnect_packet_from_server and reason.is_failure, (topic, reason))
        other = self.join("other").hear_answers()
        self.assertEqual(other.ask("GET", "k").payload, b"$-1\r\n")

    def test_what_cannot_be_answered_is_not_applied_and_ends_nothing(self):
        guest = self.join("guest").hear_answers()
        guest.send("SET", "k", "v", properties={"ResponseTopic": None})
        guest.send("SET", "k", "v", properties={"CorrelationData": None})
        guest.send("SET", "k", "v", qos=0)
        guest.send("SET", "k", "v", qos=2)
        self.assertEqual(guest.ask("GET", "k").payload, b"$-1\r\n")
        self.assertEqual(guest.early, [])
        self.assertTrue(guest.ends.empty())

    def test_a_forged_notification_goes_nowhere(self):
        guest, forger = self.join("guest").hear_answers(), self.join("forger")
        guest.subscribe("clients/statestore/#")
        guest.ask("KEYNOTIFY", "k")
        sent = forger.publish(f"clients/{STORE}/{guest.hex}/command/notify/6B", notified_set("forged"))
        sent.wait_for_publish(PATIENCE_S)
        self.assertTrue(sent.is_published())
        self.assertEqual(guest.so_far(), [])

    def test_a_message_that_expires_while_its_receiver_is_away_is_not_delivered(self):
        line = self.line()
        away = Guest(line.port, "away")
        away.subscribe("to/away")
        away.vanish()
        line.cut()
        writer = self.join("writer")
        for payload, expiry_s in (("short", 1), ("long", 1000), ("never", None)):
            properties = {} if expiry_s is None else {"MessageExpiryInterval": expiry_s}
            writer.publish("to/away", payload, **properties).wait_for_publish(PATIENCE_S)
        # The store's own clock says when a second is over.
        watcher = self.join("watcher").hear_answers()
        watcher.ask("KEYNOTIFY", "second")
        watcher.ask("SET", "second", "v", "PX", "1100")
        for _ in range(2):
            watcher.next()
        back = Guest(self.store.port, "away").hear_answers()
        self.addCleanup(back.leave)
        self.assertTrue(back.session_present)
        self.assertEqual([message.payload for message in back.so_far()], [b"long", b"never"])

    def test_a_clock_that_is_behind_is_taken(self):
        guest = self.join("guest").hear_answers()
        answer = guest.ask("SET", "k", "v", ts="1:0:guest")
        self.assertEqual(answer.payload, b"+OK\r\n")
        self.assertGreater(answer.version[0], 1_000_000_000_000)
        self.assertEqual(answer.version[2], "StateStore")

    def test_a_ping_is_answered_at_once(self):
        # The Rust SDK waits no longer than two seconds.
        self.assertTrue(self.join("guest").hear_answers().is_pinged())
