//! Tests of one instance: joining, serving, giving the store up.

use bytes::Bytes;

use super::*;
use crate::ledger::RegistrationRecord;
use crate::ledger::etcd::action::ActionKind;
use crate::ledger::etcd::codec::{Head, MemberState, encode_request, encode_run};
use crate::ledger::etcd::operation::{Operation, Pair, RangeAnswer, TxnAnswer, WatchEvent};
use crate::protocol::Key;

const NOW: Now = Now { wall_ms: 1_000, monotonic_ms: 100 };

fn instance() -> Instance {
    Instance::new(InstanceSettings {
        layout: Layout::new("c"),
        instance: "a".into(),
        run: 7,
        hash_key: [1; CLUSTER_KEY_BYTES],
        confirms_by_commit: false,
        compacts: false,
    })
}

fn answer(instance: &mut Instance, id: ActionId, revision: u64, outcome: TxnOutcome) {
    instance.handle_answer(id, Ok(Answer::Txn(TxnAnswer { revision, outcome })), NOW);
}

fn effects(instance: &mut Instance) -> Vec<Effect> {
    std::iter::from_fn(|| instance.poll_effect()).collect()
}

/// A candidate.
struct Candidacy {
    instance: Instance,
    watch: ActionId,
    /// The watch of the members.
    roster: ActionId,
    takeover: Action,
}

/// Joins, reads an empty state and that there are no other members, and asks for the watches and a takeover.
fn candidate() -> Candidacy {
    let mut instance = instance();
    let join = instance.poll_action(NOW).unwrap();
    answer(&mut instance, join.id, 1, TxnOutcome::Applied);
    let member = Pair { key: Layout::new("c").member("a"), value: encode_run(7), mod_revision: 1 };
    let (mut watch, mut roster) = (None, None);
    let takeover = loop {
        let action = instance.poll_action(NOW).unwrap();
        match &action.kind {
            ActionKind::Read(read) => {
                let is_roster = read.from == Layout::new("c").roster().0;
                let pairs = if is_roster { vec![member.clone()] } else { Vec::new() };
                let found = RangeAnswer { revision: 1, pairs, more: 0 };
                instance.handle_answer(action.id, Ok(Answer::Read(found)), NOW);
            }
            ActionKind::Watch(range) if range.from == Layout::new("c").roster().0 => roster = Some(action.id),
            ActionKind::Watch(_) => watch = Some(action.id),
            _ => break action,
        }
    };
    assert_eq!(instance.poll_action(NOW), None);
    effects(&mut instance);
    Candidacy { instance, watch: watch.unwrap(), roster: roster.unwrap(), takeover }
}

fn owner() -> Instance {
    watching_owner().0
}

/// Returns an owner with its watch of the members.
fn watching_owner() -> (Instance, ActionId) {
    let Candidacy { mut instance, watch, roster, takeover } = candidate();
    answer(&mut instance, takeover.id, 2, TxnOutcome::Applied);
    assert_eq!(effects(&mut instance), [], "what was committed before may not be received yet");
    assert_eq!(instance.status().role, Role::Follower);
    let ActionKind::Txn(txn) = takeover.kind else { panic!() };
    let Operation::Put { key, value, .. } = txn.operations[0].clone() else { panic!() };
    let event = WatchEvent { key, value: Some(value), mod_revision: 2 };
    instance.handle_watch(watch, Ok(WatchBatch { revision: 2, events: vec![event] }), NOW);
    let (floor, greatest) = (Version::default(), Version::default());
    let serve = Effect::Serve { epoch: 1, floor, greatest, wall_ms: 1_000 };
    assert_eq!(effects(&mut instance)[..2], [Effect::ShortOfSpace(false), serve]);
    let look = instance.poll_action(NOW).unwrap();
    assert_eq!(look.kind, ActionKind::Space);
    instance.handle_answer(look.id, Ok(Answer::Space(Space::Enough.into())), NOW);
    assert!(matches!(instance.poll_action(NOW).unwrap().kind, ActionKind::CancelWatch(id) if id == watch));
    (instance, roster)
}

#[test]
fn an_instance_serves_when_its_takeover_has_come_through_its_own_watch() {
    let instance = owner();
    assert!(instance.wants_group());
    let status = instance.status();
    assert_eq!((status.role, status.owner.as_deref(), status.epoch), (Role::Owner, Some("a"), 1));
}

#[test]
fn another_format_is_reported_and_never_served() {
    let mut instance = instance();
    let join = instance.poll_action(NOW).unwrap();
    let pair = Pair { key: Layout::new("c").meta(), value: vec![9, 0].into(), mod_revision: 1 };
    answer(&mut instance, join.id, 1, TxnOutcome::NotApplied(vec![Some(pair)]));
    let reason = "format 9".to_owned();
    assert_eq!(effects(&mut instance), [Effect::Report(ClusterEvent::Incompatible { reason })]);
    assert_eq!((instance.poll_action(NOW), instance.next_deadline()), (None, None));
    assert_eq!(instance.status().role, Role::Incompatible);
}

#[test]
fn an_owner_that_resigns_stops_first_and_leaves_a_head_without_owner() {
    let mut instance = owner();
    instance.resign();
    let action = instance.poll_action(NOW).unwrap();
    assert_eq!(effects(&mut instance), [Effect::Stop]);
    let ActionKind::Txn(txn) = &action.kind else { panic!() };
    let Operation::Put { value, .. } = &txn.operations[0] else { panic!() };
    assert_eq!(Head::decode(value).unwrap().owner, None);
    assert!(!instance.is_closed());
    answer(&mut instance, action.id, 3, TxnOutcome::Applied);
    assert!(instance.is_closed());
    assert_eq!((instance.poll_action(NOW), instance.next_deadline()), (None, None));
}

#[test]
fn an_owner_that_has_lost_the_store_stops_and_reads_it_again() {
    let mut instance = owner();
    instance.commit(Group { sequence: 4, ..Group::default() }, NOW);
    let action = instance.poll_action(NOW).unwrap();
    let none = RangeAnswer { revision: 9, pairs: Vec::new(), more: 0 };
    instance.handle_answer(action.id, Ok(Answer::Read(none)), NOW);
    let lost = Effect::Report(ClusterEvent::LostOwnership { epoch: 1 });
    assert_eq!(effects(&mut instance), [Effect::Stop, lost]);
    assert!(!instance.wants_group());
    assert!(matches!(instance.poll_action(NOW).unwrap().kind, ActionKind::Read(_)));
}

#[test]
fn a_takeover_whose_head_the_watch_does_not_receive_is_looked_for_in_etcd() {
    let Candidacy { mut instance, watch, takeover, .. } = candidate();
    answer(&mut instance, takeover.id, 2, TxnOutcome::Applied);
    let later = Now { monotonic_ms: instance.next_deadline().unwrap(), ..NOW };
    assert_eq!(instance.poll_action(NOW), None);
    assert!(matches!(instance.poll_action(later).unwrap().kind, ActionKind::CancelWatch(id) if id == watch));
    assert!(matches!(instance.poll_action(later).unwrap().kind, ActionKind::Read(_)));
    assert_eq!(effects(&mut instance), [Effect::Report(ClusterEvent::WatchGap)]);
}

fn pair(key: Bytes, value: Bytes) -> Pair {
    Pair { key, value, mod_revision: 3 }
}

fn read(instance: &mut Instance, now: Now, pairs: Vec<Pair>) {
    let action = instance.poll_action(now).unwrap();
    assert!(matches!(action.kind, ActionKind::Read(_)), "{action:?}");
    let answer = RangeAnswer { revision: 3, pairs: pairs.clone(), more: 0 };
    instance.handle_answer(action.id, Ok(Answer::Read(answer)), now);
    let pages = instance.poll_action(now).unwrap();
    assert!(matches!(&pages.kind, ActionKind::Read(read) if read.revision == Some(3)), "{pages:?}");
    let answer = RangeAnswer { revision: 3, pairs, more: 0 };
    instance.handle_answer(pages.id, Ok(Answer::Read(answer)), now);
}

/// Lets another member come, whose clock is `offset_ms` from this one's.
fn note_member(instance: &mut Instance, roster: ActionId, (name, offset_ms): (&str, i64), revision: u64) {
    let layout = Layout::new("c");
    let wall_ms = NOW.wall_ms.checked_add_signed(offset_ms).unwrap();
    let values = [
        (layout.clock(name), MemberState { wall_ms, off_ms: 0, reads_at: 0 }.encode()),
        (layout.member(name), encode_run(9)),
    ];
    let events = values.map(|(key, value)| WatchEvent { key, value: Some(value), mod_revision: revision });
    instance.handle_watch(roster, Ok(WatchBatch { revision, events: events.into() }), NOW);
}

#[test]
fn an_owner_whose_clock_was_set_an_hour_ahead_gives_the_store_up_before_its_versions_follow() {
    let (mut instance, roster) = watching_owner();
    note_member(&mut instance, roster, ("b", 0), 3);
    assert_eq!(instance.poll_action(NOW), None);
    instance.set_machine_clock(NOW.wall_ms + 3_600_000, NOW);
    assert_eq!(instance.poll_action(NOW), None, "it may be a pause");
    let mut at = NOW;
    let resignation = loop {
        let due_ms = instance.next_deadline().unwrap().max(at.monotonic_ms);
        at = Now { wall_ms: NOW.wall_ms + due_ms - NOW.monotonic_ms, monotonic_ms: due_ms };
        let Some(action) = instance.poll_action(at) else { continue };
        match action.kind {
            ActionKind::Txn(txn) => break txn,
            ActionKind::Read(read) => {
                // The owner confirms its ownership, and looks for a request of the operator.
                let head = Pair { key: read.from, value: Bytes::new(), mod_revision: 2 };
                let pairs = if head.key == Layout::new("c").head() { vec![head] } else { Vec::new() };
                let answer = RangeAnswer { revision: 3, pairs, more: 0 };
                instance.handle_answer(action.id, Ok(Answer::Read(answer)), at);
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(at.monotonic_ms <= NOW.monotonic_ms + 4_000, "{at:?}");
    let Operation::Put { value, .. } = &resignation.operations[0] else { panic!() };
    let head = Head::decode(value).unwrap();
    assert_eq!((head.owner, head.wall_ms), (None, NOW.wall_ms), "the head has not followed");
    assert_eq!(instance.status().clock_off_ms, 3_600_000);
    let reported = Effect::Report(ClusterEvent::ClockOff { off_ms: 3_600_000 });
    assert!(effects(&mut instance).contains(&reported));
}

#[test]
fn an_instance_whose_clock_is_off_takes_nothing_over_until_it_is_set_right() {
    let Candidacy { mut instance, roster, takeover, .. } = candidate();
    instance.handle_answer(takeover.id, Err(EtcdError::NoSpace), NOW);
    note_member(&mut instance, roster, ("b", 40_000), 3);
    note_member(&mut instance, roster, ("d", 50_000), 4);
    let later = Now { wall_ms: NOW.wall_ms + 5_000, monotonic_ms: NOW.monotonic_ms + 5_000 };
    assert_eq!(instance.poll_action(later), None);
    assert_eq!(instance.status().clock_off_ms, 0, "not for long enough");
    let later = Now { wall_ms: later.wall_ms + 2_000, monotonic_ms: later.monotonic_ms + 2_000 };
    assert_eq!(instance.poll_action(later), None);
    assert_eq!(instance.status().clock_off_ms, -40_000);
    instance.set_machine_clock(later.wall_ms + 45_000, later);
    let mut again = instance.poll_action(later);
    assert!(effects(&mut instance).contains(&Effect::Report(ClusterEvent::ClockRight)));
    // The other candidates may come first.
    let in_turn = Now { monotonic_ms: later.monotonic_ms + 1_000, ..later };
    again = again.or_else(|| instance.poll_action(in_turn));
    assert!(matches!(again.unwrap().kind, ActionKind::Txn(_)));
}

#[test]
fn an_owner_that_clients_do_not_reach_gives_the_store_up_and_takes_over_again_when_they_do() {
    let ((mut instance, roster), layout) = (watching_owner(), Layout::new("c"));
    instance.set_reached(false, NOW);
    assert_eq!(instance.poll_action(NOW), None);
    let members = ["A", "a"].map(|name| WatchEvent {
        key: layout.member(name),
        value: Some(encode_run(7)),
        mod_revision: 3,
    });
    instance.handle_watch(roster, Ok(WatchBatch { revision: 3, events: members.into() }), NOW);
    assert_eq!(instance.poll_action(NOW), None);
    let later = Now { monotonic_ms: instance.next_deadline().unwrap(), ..NOW };
    let resignation = instance.poll_action(later).unwrap();
    assert_eq!(effects(&mut instance), [Effect::Stop]);
    answer(&mut instance, resignation.id, 3, TxnOutcome::Applied);
    assert_eq!(effects(&mut instance), [Effect::Report(ClusterEvent::Resigned { epoch: 1 })]);
    assert!(!instance.is_closed());
    let ActionKind::Txn(txn) = resignation.kind else { panic!() };
    let Operation::Put { key, value, .. } = txn.operations[0].clone() else { panic!() };
    read(&mut instance, later, vec![pair(key, value)]);
    assert!(matches!(instance.poll_action(later).unwrap().kind, ActionKind::Watch(_)));
    let much_later = Now { monotonic_ms: later.monotonic_ms + 5_000, ..later };
    // Only the members are read again.
    let members_ms = NOW.monotonic_ms + 10_000;
    assert_eq!((instance.poll_action(much_later), instance.next_deadline()), (None, Some(members_ms)));
    instance.set_reached(true, much_later);
    assert_eq!(instance.poll_action(much_later), None, "the other member comes first");
    let in_turn = Now { monotonic_ms: instance.next_deadline().unwrap(), ..later };
    assert!(in_turn.monotonic_ms > much_later.monotonic_ms);
    assert!(matches!(instance.poll_action(in_turn).unwrap().kind, ActionKind::Txn(_)));
}

#[test]
fn a_clock_of_the_cluster_that_is_ahead_is_reported_once() {
    let Candidacy { mut instance, watch, .. } = candidate();
    let reports: Vec<usize> = [7_000, 9_000, 5_000, 6_001]
        .into_iter()
        .zip(2..)
        .map(|(wall_ms, seq)| {
            let owner = Some(Owner { instance: "b".to_owned(), run: 1 });
            let head = Head { owner, epoch: 1, seq: seq - 1, wall_ms, ..Head::default() };
            let value = Some(head.encode());
            let event = WatchEvent { key: Layout::new("c").head(), value, mod_revision: seq };
            let batch = WatchBatch { revision: seq, events: vec![event] };
            instance.handle_watch(watch, Ok(batch), NOW);
            let is_report =
                |effect: &Effect| matches!(effect, Effect::Report(ClusterEvent::ClockAhead { .. }));
            effects(&mut instance).iter().filter(|effect| is_report(effect)).count()
        })
        .collect();
    assert_eq!(reports, [1, 0, 0, 1]);
}

#[test]
fn an_operator_is_heeded_at_once_but_only_about_the_present_ownership() {
    let ((mut instance, roster), layout) = (watching_owner(), Layout::new("c"));
    let mut ask = |epoch, revision| {
        let value = Some(encode_request(epoch));
        let event = WatchEvent { key: layout.request(), value, mod_revision: revision };
        instance.handle_watch(roster, Ok(WatchBatch { revision, events: vec![event] }), NOW);
        instance.poll_action(NOW)
    };
    assert_eq!(ask(0, 3), None, "it is about an earlier ownership");
    let resignation = ask(1, 4).unwrap();
    assert_eq!(effects(&mut instance), [Effect::Stop]);
    answer(&mut instance, resignation.id, 5, TxnOutcome::Applied);
    assert_eq!(effects(&mut instance), [Effect::Report(ClusterEvent::Resigned { epoch: 1 })]);
    let ActionKind::Txn(txn) = resignation.kind else { panic!() };
    let Operation::Put { key, value, .. } = txn.operations[0].clone() else { panic!() };
    read(&mut instance, NOW, vec![pair(key, value)]);
    assert!(matches!(instance.poll_action(NOW).unwrap().kind, ActionKind::Watch(_)));
    assert_eq!(instance.poll_action(NOW), None, "it leaves the store to others, although there are none");
    assert_eq!(instance.next_deadline(), Some(NOW.monotonic_ms + LEFT_MS));
}

#[test]
fn a_failure_that_lasts_is_reported_once_in_a_while_and_names_the_permission_to_grant() {
    let mut instance = instance();
    let mut reports = Vec::new();
    let mut now = NOW;
    while now.monotonic_ms < NOW.monotonic_ms + FAILURE_AGAIN_MS {
        let join = instance.poll_action(now).unwrap();
        let reason = "etcd at a:2379: permission denied".to_owned();
        instance.handle_answer(join.id, Err(EtcdError::Refused { reason }), now);
        reports.extend(effects(&mut instance));
        let due_ms = instance.next_deadline().unwrap();
        assert_eq!(due_ms - now.monotonic_ms, 1_000, "it is asked again at a bounded rate");
        now.monotonic_ms = due_ms;
    }
    let [Effect::Report(ClusterEvent::Refused { reason })] = &reports[..] else { panic!("{reports:?}") };
    let command = "etcdctl role grant-permission ROLE --prefix=true readwrite /mqkv/c/";
    assert!(reason.contains("permission denied: ") && reason.ends_with(command), "{reason}");
    let join = instance.poll_action(now).unwrap();
    instance.handle_answer(join.id, Err(EtcdError::Refused { reason: "another".to_owned() }), now);
    assert_eq!(effects(&mut instance).len(), 1);
}

#[test]
fn values_are_refused_before_etcd_is_full_and_until_it_has_space_again_while_commits_go_on() {
    let mut instance = owner();
    let mut now = NOW;
    let mut after = |space: Space| loop {
        now.monotonic_ms += 1_000;
        let mut actions = std::iter::from_fn(|| instance.poll_action(now));
        if let Some(look) = actions.find(|action| action.kind == ActionKind::Space) {
            instance.handle_answer(look.id, Ok(Answer::Space(space.into())), now);
            let is_exhausted = instance.chain.as_ref().unwrap().is_short_of_space();
            break (effects(&mut instance), is_exhausted);
        }
    };
    let shown = |is_short| {
        let event = if is_short { ClusterEvent::NoSpace } else { ClusterEvent::SpaceAgain };
        vec![Effect::Report(event), Effect::ShortOfSpace(is_short)]
    };
    assert_eq!(after(Space::Low), (shown(true), false), "responses of deletions are still committed");
    assert_eq!(after(Space::Exhausted), (Vec::new(), true));
    assert_eq!(after(Space::Low), (Vec::new(), false));
    assert_eq!(after(Space::Enough), (shown(false), false));
}

/// Returns an owner for whose group etcd has no space, and its head.
fn owner_without_space() -> (Instance, Head) {
    let mut instance = owner();
    let (head, _) = instance.follower.head().cloned().unwrap();
    let registration =
        RegistrationRecord { key: Key::new("k").unwrap(), client_id: "client".into(), is_registered: true };
    let records = vec![(1, Record::Registration(registration))];
    instance.commit(Group { records, sequence: 1, ..Group::default() }, NOW);
    let commit = instance.poll_action(NOW).unwrap();
    instance.handle_answer(commit.id, Err(EtcdError::NoSpace), NOW);
    let report = Effect::Report(ClusterEvent::NoSpace);
    assert_eq!(effects(&mut instance), [report, Effect::ShortOfSpace(true), Effect::Pause]);
    assert!(!instance.wants_group());
    assert_eq!(instance.status().role, Role::Owner);
    (instance, head)
}

fn head_pair(head: &Head, mod_revision: u64) -> Pair {
    Pair { key: Layout::new("c").head(), value: head.encode(), mod_revision }
}

#[test]
fn an_owner_for_whose_group_etcd_has_no_space_reads_the_state_again_and_goes_on_without_a_takeover() {
    let (mut instance, head) = owner_without_space();
    let later = Now { monotonic_ms: NOW.monotonic_ms + 3_000, ..NOW };
    let stale = instance.poll_action(later).unwrap();
    instance.handle_answer(
        stale.id,
        Ok(Answer::Read(RangeAnswer { revision: 1, ..RangeAnswer::default() })),
        later,
    );
    assert_eq!(effects(&mut instance), [], "etcd has answered with an earlier state");
    read(&mut instance, later, vec![head_pair(&head, 2)]);
    assert_eq!(instance.status().role, Role::Owner);
    let (floor, greatest) = (Version::default(), Version::default());
    let serve = Effect::Serve { epoch: 1, floor, greatest, wall_ms: 1_000 };
    assert_eq!(effects(&mut instance), [Effect::Reset, Effect::ShortOfSpace(true), serve]);
    assert_eq!(instance.follower.clock().at(later), head.clock_ms + 3_000, "times to live end in time");
    assert!(instance.wants_group() && instance.chain.as_ref().unwrap().is_short_of_space());
    instance.read_state_again(later);
    assert_eq!(instance.next_deadline(), Some(later.monotonic_ms), "the last time was long ago");
    let again_ms = later.monotonic_ms + REREAD_PAUSE_MS;
    assert_eq!(instance.ownership.unwrap().rereads_ms, again_ms);
}

#[test]
fn an_owner_that_finds_another_one_when_it_reads_the_state_again_has_lost_the_store() {
    for other in [Some("b"), None] {
        let (mut instance, head) = owner_without_space();
        let owner = |instance: &str| Owner { instance: instance.to_owned(), run: 1 };
        let head = Head { owner: other.map(owner), epoch: 2, ..head };
        let action = instance.poll_action(NOW).unwrap();
        let answer = RangeAnswer { revision: 3, pairs: vec![head_pair(&head, 3)], more: 0 };
        instance.handle_answer(action.id, Ok(Answer::Read(answer)), NOW);
        let lost = Effect::Report(ClusterEvent::LostOwnership { epoch: 1 });
        assert_eq!(effects(&mut instance), [Effect::Reset, Effect::Stop, lost]);
        assert_eq!(instance.status().role, Role::Loading);
    }
}

#[test]
fn an_owner_may_resign_while_it_reads_the_state_again() {
    let (mut instance, _) = owner_without_space();
    instance.resign();
    assert!(instance.is_closed());
    assert_eq!((instance.poll_action(NOW), instance.next_deadline()), (None, None));
}
