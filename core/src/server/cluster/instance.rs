//! One instance: joins the cluster, follows, takes over, commits, resigns.

use std::collections::VecDeque;
use std::sync::Arc;

use super::candidate::{Candidate, View};
use super::clocks::ClockCheck;
use super::departure::Departure;
use super::event::ClusterEvent;
use super::roster::Roster;
use super::status::{Role, Status};
use super::upkeep::Upkeep;
use crate::ledger::etcd::CLUSTER_KEY_BYTES;
use crate::ledger::etcd::action::{Action, ActionId, ActionResult, Answer, Call, Ids};
use crate::ledger::etcd::chain::{Chain, ChainEvent};
use crate::ledger::etcd::codec::{Head, Meta, Owner};
use crate::ledger::etcd::commit::put;
use crate::ledger::etcd::follower::{Follower, FollowerEvent};
use crate::ledger::etcd::layout::Layout;
use crate::ledger::etcd::operation::{Condition, EtcdError, Space, Txn, TxnOutcome, WatchBatch};
use crate::ledger::etcd::space::SpaceWatch;
use crate::ledger::{Group, Record};
use crate::store::{Now, Version};

/// How far the clock of an owner may be ahead of that of another instance before this is reported.
const CLOCK_AHEAD_MS: u64 = 5_000;
/// So long an instance that was asked to give the store up leaves it to others, in milliseconds.
const LEFT_MS: u64 = 10_000;
/// An owner reads the state again no more often, in milliseconds.
const REREAD_PAUSE_MS: u64 = 1_000;
/// The time after which the same failure is reported again, in milliseconds.
const FAILURE_AGAIN_MS: u64 = 60_000;

/// One instance of a cluster, as a state machine without I/O.
///
/// The caller does what [`Instance::poll_action`] returns, and passes the answers to [`Instance::handle_answer`] and
/// [`Instance::handle_watch`]. After each call, and at [`Instance::next_deadline`], it polls until there are no more actions and
/// effects. It keeps the key [`Layout::member`] with a lease while the instance runs.
///
/// The application is given the whole state by effects, as a follower. After [`Effect::Serve`] it is the owner: it decides
/// requests in memory, and while [`Instance::wants_group`] is true it commits what it has decided and read. Nothing may be
/// answered before [`Effect::Committed`]: a commit proves that no other instance was the owner when it was sent, which is after
/// the requests had come. After [`Effect::Stop`] and [`Effect::Pause`], nothing may be answered at all, and another state follows.
#[derive(Debug)]
pub struct Instance {
    settings: InstanceSettings,
    stage: Stage,
    follower: Follower,
    roster: Roster,
    candidate: Candidate,
    departure: Departure,
    /// Whether the owner gives the store up because an operator asks for it.
    is_asked: bool,
    /// While the instance is the owner.
    ownership: Option<Ownership>,
    /// `None` while the owner reads the state again.
    chain: Option<Chain>,
    upkeep: Option<Upkeep>,
    /// The epoch of the last ownership that has ended: the same one never serves again.
    ended_epoch: u64,
    /// Whether it was reported that the clock of the cluster is ahead.
    is_ahead: bool,
    /// Whether clients reach the instance.
    is_reached: bool,
    clock: ClockCheck,
    /// The last failure that was reported, and when, in monotonic milliseconds.
    reported: Option<(ClusterEvent, u64)>,
    ids: Ids,
    effects: VecDeque<Effect>,
}

/// Settings of an instance.
#[derive(Clone, Debug)]
pub struct InstanceSettings {
    pub layout: Layout,
    /// The name of the instance, which no other one has.
    pub instance: Arc<str>,
    /// A random number that no other run of the instance has.
    pub run: u64,
    /// Random bytes: the hash key of the cluster if this instance creates it.
    pub hash_key: [u8; CLUSTER_KEY_BYTES],
    /// Whether etcd may answer a read with a stale state, so that reads are confirmed by a commit.
    pub confirms_by_commit: bool,
    /// Whether the history of etcd is compacted.
    pub compacts: bool,
}

#[derive(Debug)]
enum Stage {
    /// Reads or creates the record that all instances agree on.
    Joining(Call),
    Active,
    /// Gives the store up, or has done so.
    Closing,
    /// The cluster has another format.
    Incompatible,
}

/// What is known for as long as an ownership lasts.
#[derive(Debug)]
struct Ownership {
    epoch: u64,
    space: SpaceWatch,
    /// Whether the application knows that etcd has no space, or soon none.
    is_short_of_space: bool,
    /// When the state may be read again, in monotonic milliseconds.
    rereads_ms: u64,
}

/// What an instance asks of its application, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The instance takes part in the cluster. The key is for hashes that must be the same in all instances.
    Joined {
        hash_key: [u8; CLUSTER_KEY_BYTES],
    },
    /// Forget all rows, registrations and responses.
    Reset,
    /// Take over a row, a registration or a response. A follower does not expire rows.
    Apply(Record),
    /// Answer requests from now on. Absent keys must get versions above `floor`, those that were removed since [`Effect::Reset`]
    /// above their last one, which is `greatest` at most, and the clock of versions must not be behind `wall_ms`.
    Serve {
        epoch: u64,
        floor: Version,
        greatest: Version,
        wall_ms: u64,
    },
    /// All requests up to this sequence number can be answered.
    Committed {
        sequence: u64,
    },
    /// Whether values and registrations must not be written any more: etcd has no space, or soon none.
    ShortOfSpace(bool),
    /// Answer nothing any more, and drop all that waits: another instance may be the owner.
    Stop,
    /// The same, but the same ownership serves again as soon as the state has been read, unless [`Effect::Stop`] follows.
    Pause,
    Report(ClusterEvent),
}

impl Instance {
    #[must_use]
    pub fn new(settings: InstanceSettings) -> Self {
        let layout = settings.layout.clone();
        let owner = Owner { instance: (*settings.instance).to_owned(), run: settings.run };
        let meta = Meta { hash_key: settings.hash_key };
        let key = layout.meta();
        let join = Txn {
            conditions: vec![Condition { key: key.clone(), mod_revision: 0 }],
            operations: vec![put(key.clone(), meta.encode())],
            otherwise: vec![key],
        };
        Self {
            stage: Stage::Joining(Call::txn(join)),
            follower: Follower::new(layout.clone()),
            roster: Roster::new(layout.clone()),
            departure: Departure::new(&settings.instance),
            is_asked: false,
            candidate: Candidate::new(layout, owner),
            ownership: None,
            chain: None,
            upkeep: None,
            ended_epoch: 0,
            is_ahead: false,
            is_reached: true,
            clock: ClockCheck::default(),
            reported: None,
            ids: Ids::default(),
            effects: VecDeque::new(),
            settings,
        }
    }

    #[must_use]
    pub fn status(&self) -> Status {
        let followed = self.follower.head().map(|(head, _)| head);
        let head = self.chain.as_ref().map(Chain::head).or(followed);
        let role = match self.stage {
            Stage::Closing => Role::Closed,
            Stage::Incompatible => Role::Incompatible,
            Stage::Active if self.ownership.is_some() => Role::Owner,
            Stage::Active if self.follower.is_following() => Role::Follower,
            Stage::Active | Stage::Joining(_) => Role::Loading,
        };
        Status {
            role,
            owner: head.and_then(|head| head.owner.as_ref()).map(|owner| owner.instance.clone()),
            epoch: head.map_or(0, |head| head.epoch),
            seq: head.map_or(0, |head| head.seq),
            members: self.roster.members().len(),
            is_reached: self.is_reached,
            clock_off_ms: self.clock.off_ms(),
            clock_offset_ms: self.clock.offset_ms(),
            reads_at: self.follower.reads_at().unwrap_or(0),
            keys_read: self.follower.keys_read(),
            etcd: self.ownership.as_ref().and_then(|ownership| ownership.space.size()),
        }
    }

    /// Returns the next operation on etcd.
    pub fn poll_action(&mut self, now: Now) -> Option<Action> {
        match &mut self.stage {
            Stage::Joining(call) => return call.poll(now.monotonic_ms, &mut self.ids),
            Stage::Incompatible => return None,
            Stage::Active | Stage::Closing => {}
        }
        self.check_machine_clock(now);
        if self.may_take_over() && self.candidate.is_overdue(now) {
            self.candidate.reset();
            self.follower.read_again(now.monotonic_ms);
            self.effects.push_back(Effect::Report(ClusterEvent::WatchGap));
        }
        if self.may_yield()
            && let Some(chain) = &mut self.chain
        {
            self.is_asked = self.roster.requested_epoch() == Some(chain.head().epoch);
            if self.is_asked || self.departure.is_due(self.roster.members(), now) {
                chain.resign();
            }
        }
        if self.chain.as_ref().is_some_and(Chain::is_drained) {
            self.stop();
        }
        let of_head = self.time_of_head(now);
        if let Some(action) = self.chain.as_mut().and_then(|chain| chain.poll_action(of_head, &mut self.ids))
        {
            return Some(action);
        }
        let ownership = self.ownership.as_mut();
        if let Some(action) = ownership.and_then(|it| it.space.poll_action(now, &mut self.ids)) {
            return Some(action);
        }
        if let Some(action) = self.follower.poll_action(now, &mut self.ids) {
            return Some(action);
        }
        if self.needs_members()
            && let Some(action) = self.roster.poll_action(now, &mut self.ids)
        {
            return Some(action);
        }
        if self.may_take_over() {
            let view = view(&self.follower, &self.roster);
            let (candidate, ids) = (&mut self.candidate, &mut self.ids);
            if let Some(action) = candidate.poll_action(view, now, ids) {
                return Some(action);
            }
        }
        self.upkeep.as_mut()?.poll_action(now, &mut self.ids)
    }

    /// Whether the instance may give the store up to another one, which could take it over.
    fn may_yield(&self) -> bool {
        let is_steady = |chain: &Chain| !chain.is_short_of_space() && !chain.is_resigning();
        matches!(self.stage, Stage::Active) && self.chain.as_ref().is_some_and(is_steady)
    }

    fn needs_members(&self) -> bool {
        matches!(self.stage, Stage::Active)
    }

    fn may_take_over(&self) -> bool {
        matches!(self.stage, Stage::Active)
            && self.chain.is_none()
            && self.follower.is_following()
            && self.roster.is_known()
    }

    /// Returns when to poll for an action, in monotonic milliseconds; the time may have passed.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        match &self.stage {
            Stage::Joining(call) => return call.next_deadline(),
            Stage::Incompatible => return None,
            Stage::Active | Stage::Closing => {}
        }
        let takeover =
            self.may_take_over().then(|| self.candidate.next_deadline(view(&self.follower, &self.roster)));
        [
            self.chain.as_ref().and_then(Chain::next_deadline),
            self.ownership.as_ref().and_then(|ownership| ownership.space.next_deadline()),
            self.follower.next_deadline(),
            self.roster.next_deadline().filter(|_| self.needs_members()),
            takeover.flatten(),
            self.departure.next_deadline(self.roster.members()).filter(|_| self.may_yield()),
            self.clock.next_deadline(),
            self.upkeep.as_ref().and_then(Upkeep::next_deadline),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns what the application must do next.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Whether the application may commit a group: it is the owner, and the last group is committed.
    #[must_use]
    pub fn wants_group(&self) -> bool {
        self.chain.as_ref().is_some_and(Chain::wants_group)
    }

    /// Commits a group, and confirms what was read up to now. Must only be called while [`Instance::wants_group`] is true.
    pub fn commit(&mut self, group: Group, now: Now) {
        let Some(chain) = &mut self.chain else { return };
        if let Err(event) = chain.commit(group, now) {
            self.handle_chain_events(vec![event], now);
        }
    }

    /// Gives the store up, after what is under way, and takes it over no more: see [`Instance::is_closed`].
    pub fn resign(&mut self) {
        if !matches!(self.stage, Stage::Closing) {
            self.stage = Stage::Closing;
            self.follower.suspend();
            self.upkeep = None;
            match &mut self.chain {
                Some(chain) => chain.resign(),
                None => _ = self.end_ownership(),
            }
        }
    }

    /// Notes whether clients reach the instance: behind a broker, whether it is connected. An instance that they do not reach
    /// takes nothing over; as the owner, it gives the store up if there is another member, and follows.
    pub fn set_reached(&mut self, is_reached: bool, now: Now) {
        self.is_reached = is_reached;
        self.note_fitness(now);
    }

    /// Notes what the clock of the machine shows. [`Now::wall_ms`] may be another time: it follows a great step late.
    pub fn set_machine_clock(&mut self, wall_ms: u64, now: Now) {
        self.clock.set_machine_clock(wall_ms, now);
    }

    /// Compares the clock of the machine with those of the others. An instance whose clock is off takes nothing over; as the owner, it
    /// gives the store up if there is another member.
    fn check_machine_clock(&mut self, now: Now) {
        let chain = self.chain.as_ref();
        let head = chain.map(Chain::head).or_else(|| self.follower.head().map(|(head, _)| head));
        let others = self.roster.clocks_of_others(&self.settings.instance, chain.is_some(), now);
        let event = self.clock.check(head.map(|head| head.wall_ms), chain.is_some(), &others, now);
        self.effects.extend(event.map(Effect::Report));
        self.note_fitness(now);
    }

    /// Returns the time that the next head shows. A clock that is off does not move it: all instances whose clocks are right would be
    /// behind the head, and wait.
    fn time_of_head(&self, now: Now) -> Now {
        match &self.chain {
            Some(chain) if self.clock.is_off() => Now { wall_ms: chain.head().wall_ms, ..now },
            _ => now,
        }
    }

    /// Makes the instance own nothing while clients do not reach it, or while its clock is off.
    fn note_fitness(&mut self, now: Now) {
        self.departure.set_reached(self.is_reached && self.clock.off_ms() == 0, now);
        self.candidate.set_waiting(!self.is_reached || self.clock.is_off());
    }

    /// Whether the instance has given the store up, so that nothing is under way any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closing) && self.chain.is_none()
    }

    /// Handles the answer to an action. Answers that are not awaited any more change nothing.
    pub fn handle_answer(&mut self, id: ActionId, result: ActionResult, now: Now) {
        if let Stage::Joining(call) = &mut self.stage {
            if call.is(id) {
                self.handle_meta(result, now);
            }
        } else if self.chain.as_ref().is_some_and(|chain| chain.awaits(id)) {
            let events = self.chain.as_mut().map(|chain| chain.handle_answer(result, now));
            self.handle_chain_events(events.unwrap_or_default(), now);
        } else if let Some(ownership) = self.ownership.as_mut().filter(|it| it.space.awaits(id)) {
            ownership.space.handle_answer(result, now);
            let is_exhausted = ownership.space.space() == Space::Exhausted;
            self.chain.iter_mut().for_each(|chain| chain.set_short_of_space(is_exhausted));
            self.show_space();
        } else if self.follower.awaits(id) {
            let events = self.follower.handle_answer(result, now);
            self.handle_follower_events(events, now);
        } else if self.roster.awaits(id) {
            self.roster.handle_answer(result, now);
            self.handle_view(now);
        } else if self.candidate.awaits(id) {
            if let Some(error) = self.candidate.handle_answer(result, now) {
                self.report_failure(error, now);
            }
            if self.candidate.take_wrong_members() {
                self.roster.read_again();
            }
        } else if let Some(upkeep) = self.upkeep.as_mut().filter(|upkeep| upkeep.awaits(id))
            && let Some(error) = upkeep.handle_answer(result, self.roster.least_read(now), now)
        {
            // Without a compaction, the history takes all space in the end.
            let reason = match error.is_denied() {
                true => format!("compaction: {error}; use --no-compaction, and let etcd compact itself"),
                false => format!("compaction: {error}"),
            };
            self.report(ClusterEvent::Refused { reason }, now);
        }
    }

    /// Handles what a watch has received, or why it has ended.
    pub fn handle_watch(&mut self, id: ActionId, result: Result<WatchBatch, EtcdError>, now: Now) {
        if self.follower.awaits(id) {
            let events = self.follower.handle_watch(result, now);
            self.handle_follower_events(events, now);
        } else if self.roster.awaits(id) {
            self.roster.handle_watch(result, now);
            self.handle_view(now);
        }
    }

    fn handle_meta(&mut self, result: ActionResult, now: Now) {
        let Stage::Joining(call) = &mut self.stage else { return };
        let answer = match result.and_then(Answer::into_txn) {
            Ok(answer) => answer,
            Err(EtcdError::Unknown { .. } | EtcdError::Compacted { .. }) => {
                return call.retry(now.monotonic_ms);
            }
            Err(error) => {
                call.retry_late(now.monotonic_ms);
                return self.report_failure(error, now);
            }
        };
        let meta = match answer.outcome {
            TxnOutcome::Applied => Ok(Meta { hash_key: self.settings.hash_key }),
            TxnOutcome::NotApplied(pairs) => {
                let pair = pairs.into_iter().next().flatten();
                Meta::decode(pair.as_ref().map_or(&[], |pair| &pair.value))
            }
        };
        match meta {
            Ok(Meta { hash_key }) => {
                self.stage = Stage::Active;
                self.upkeep =
                    self.settings.compacts.then(|| Upkeep::new(self.settings.layout.compaction(), now));
                self.effects.push_back(Effect::Joined { hash_key });
            }
            Err(reason) => {
                self.stage = Stage::Incompatible;
                self.effects.push_back(Effect::Report(ClusterEvent::Incompatible { reason }));
            }
        }
    }

    fn handle_follower_events(&mut self, events: Vec<FollowerEvent>, now: Now) {
        for event in events {
            self.effects.push_back(match event {
                FollowerEvent::Reset => Effect::Reset,
                FollowerEvent::Record(record) => Effect::Apply(record),
                FollowerEvent::Progress { keys } => Effect::Report(ClusterEvent::Reading { keys }),
                FollowerEvent::Gap => Effect::Report(ClusterEvent::WatchGap),
                FollowerEvent::Corrupt { key } => Effect::Report(ClusterEvent::Corrupt { key }),
                FollowerEvent::Error { reason } => {
                    self.report_failure(EtcdError::Refused { reason }, now);
                    continue;
                }
            });
        }
        self.check_clock(now);
        self.check_ownership();
        self.handle_view(now);
    }

    /// Looks at a head or members that have changed.
    fn handle_view(&mut self, now: Now) {
        if self.may_take_over() {
            self.candidate.handle_view(view(&self.follower, &self.roster), now);
            self.serve_if_owner(now);
        }
    }

    /// Reports once that the clock of the cluster is ahead of this instance's. One that is behind looks as a late change does.
    fn check_clock(&mut self, now: Now) {
        let Some((head, _)) = self.follower.head() else { return };
        let ahead_ms = head.wall_ms.saturating_sub(now.wall_ms);
        let is_ahead = ahead_ms > CLOCK_AHEAD_MS;
        if is_ahead && !self.is_ahead {
            self.effects.push_back(Effect::Report(ClusterEvent::ClockAhead { ahead_ms }));
        }
        self.is_ahead = is_ahead;
    }

    /// Returns the head if it names this run of the instance. An ownership that has ended may have left changes behind that are still
    /// under way: the next one ends these.
    fn own_head(&self) -> Option<&(Head, u64)> {
        let InstanceSettings { instance, run, .. } = &self.settings;
        let is_own = |owner: &Owner| owner.instance == **instance && owner.run == *run;
        self.follower
            .head()
            .filter(|(head, _)| head.owner.as_ref().is_some_and(is_own) && head.epoch > self.ended_epoch)
    }

    /// Ends the ownership if another head was found while the state is read again.
    fn check_ownership(&mut self) {
        let epoch = self.own_head().map(|(head, _)| head.epoch);
        if self.chain.is_none() && self.ownership.as_ref().is_some_and(|it| epoch != Some(it.epoch)) {
            let epoch = self.end_ownership();
            self.effects.extend([Effect::Stop, Effect::Report(ClusterEvent::LostOwnership { epoch })]);
        }
    }

    /// Begins to serve if this run of the instance is the owner: then everything before its takeover was received.
    fn serve_if_owner(&mut self, now: Now) {
        let Some((head, revision)) = self.own_head().cloned() else { return };
        let (epoch, greatest, wall_ms) = (head.epoch, head.greatest, head.wall_ms.max(now.wall_ms));
        // An operator may have lowered versions since.
        let floor = self.follower.floor().min(greatest);
        self.candidate.reset();
        // The watch would receive the own commits only. Whether another instance has taken over is known at the next one.
        let (clock, responses) = (self.follower.clock(), self.follower.suspend());
        let by_commit = self.settings.confirms_by_commit;
        let layout = self.settings.layout.clone();
        let mut chain = Chain::new(layout, (head, revision), clock, responses, by_commit, now);
        let is_new = self.ownership.is_none();
        let ownership = self.ownership.get_or_insert_with(|| Ownership {
            epoch,
            space: SpaceWatch::new(now),
            is_short_of_space: false,
            rereads_ms: 0,
        });
        chain.set_short_of_space(ownership.space.space() == Space::Exhausted);
        self.chain = Some(chain);
        self.effects.push_back(Effect::ShortOfSpace(ownership.is_short_of_space));
        self.effects.push_back(Effect::Serve { epoch, floor, greatest, wall_ms });
        if is_new {
            self.effects.push_back(Effect::Report(ClusterEvent::TookOver { epoch }));
        }
    }

    fn handle_chain_events(&mut self, events: Vec<ChainEvent>, now: Now) {
        for event in events {
            let effect = match event {
                ChainEvent::Committed(sequence) => Effect::Committed { sequence },
                ChainEvent::Uncommitted => {
                    self.read_state_again(now);
                    continue;
                }
                ChainEvent::Space { is_short } => {
                    let space = if is_short { Space::Exhausted } else { Space::Enough };
                    self.ownership.iter_mut().for_each(|it| it.space.set(space, now));
                    self.show_space();
                    continue;
                }
                ChainEvent::Error { reason } => {
                    self.report_failure(EtcdError::Refused { reason }, now);
                    continue;
                }
                ChainEvent::Lost => {
                    self.stop();
                    Effect::Report(ClusterEvent::LostOwnership { epoch: self.end_chain(now) })
                }
                ChainEvent::Resigned => {
                    let is_asked = std::mem::take(&mut self.is_asked);
                    let head = self.chain.as_ref().map(Chain::head);
                    if is_asked && let Some(head) = head.filter(|head| head.owner.is_none()) {
                        // Another instance is to have it. If none takes it, this one does again.
                        self.candidate.leave_until(now.monotonic_ms.saturating_add(LEFT_MS), head.epoch);
                    }
                    Effect::Report(ClusterEvent::Resigned { epoch: self.end_chain(now) })
                }
            };
            self.effects.push_back(effect);
        }
    }

    /// Notifies the application whether more can be written, and reports it, if that has changed.
    fn show_space(&mut self) {
        let Some(Ownership { space, is_short_of_space, .. }) = &mut self.ownership else { return };
        let is_short = space.space() != Space::Enough;
        if is_short != std::mem::replace(is_short_of_space, is_short) {
            let event = if is_short { ClusterEvent::NoSpace } else { ClusterEvent::SpaceAgain };
            self.effects.extend([Effect::Report(event), Effect::ShortOfSpace(is_short)]);
        }
    }

    /// Reports why etcd has refused an operation. It is asked for again, so the same failure is reported again after a while only.
    fn report_failure(&mut self, error: EtcdError, now: Now) {
        let event = match error {
            EtcdError::NoSpace => ClusterEvent::NoSpace,
            denied if denied.is_denied() => ClusterEvent::Refused {
                reason: format!("{denied}: {}", self.settings.layout.grant_command()),
            },
            other => ClusterEvent::Refused { reason: other.to_string() },
        };
        self.report(event, now);
    }

    /// Reports a failure that can last, not again and again.
    fn report(&mut self, event: ClusterEvent, now: Now) {
        let is_due = |(last, at_ms): &(ClusterEvent, u64)| {
            *last != event || at_ms.saturating_add(FAILURE_AGAIN_MS) <= now.monotonic_ms
        };
        if self.reported.as_ref().is_none_or(is_due) {
            self.reported = Some((event.clone(), now.monotonic_ms));
            self.effects.push_back(Effect::Report(event));
        }
    }

    /// Stops the application, once for each ownership.
    fn stop(&mut self) {
        let Some(chain) = &self.chain else { return };
        let epoch = chain.head().epoch;
        if self.ended_epoch < epoch {
            self.ended_epoch = epoch;
            self.effects.push_back(Effect::Stop);
        }
    }

    /// Drops what is uncommitted, and reads the state again. The same ownership goes on then: a takeover would need space.
    fn read_state_again(&mut self, now: Now) {
        let Some(chain) = self.chain.take_if(|chain| !chain.is_resigning()) else { return self.stop() };
        let due_ms = self.ownership.as_ref().map_or(0, |it| it.rereads_ms).max(now.monotonic_ms);
        self.ownership.iter_mut().for_each(|it| it.rereads_ms = due_ms.saturating_add(REREAD_PAUSE_MS));
        self.effects.push_back(Effect::Pause);
        self.follower.read_again_since(chain.applied_revision(), due_ms);
    }

    /// Ends the ownership, and follows again; returns its epoch.
    fn end_chain(&mut self, now: Now) -> u64 {
        self.chain = None;
        if matches!(self.stage, Stage::Active) {
            self.follower.read_again(now.monotonic_ms);
        }
        self.end_ownership()
    }

    /// Returns the epoch of the ownership that has ended.
    fn end_ownership(&mut self) -> u64 {
        let epoch = self.ownership.take().map_or(0, |ownership| ownership.epoch);
        self.is_asked = false;
        self.ended_epoch = self.ended_epoch.max(epoch);
        epoch
    }
}

fn view<'a>(follower: &'a Follower, roster: &'a Roster) -> View<'a> {
    View { head: follower.head(), members: roster.members(), clock: follower.clock() }
}

#[cfg(test)]
mod tests;
