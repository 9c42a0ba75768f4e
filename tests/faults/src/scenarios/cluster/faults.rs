//! The faults: each begins, lasts, and ends.

use std::fmt;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::network::Network;
use super::processes::{Cluster, wait_for};
use crate::random::Random;

/// What happens to a process.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    Kill,
    Terminate,
    Pause,
    /// Its links to these networks are down.
    Cut(&'static [Network]),
    /// Its clock is set, by seconds.
    Clock(i32),
}

/// The process that it happens to.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    Owner,
    Follower,
    EtcdLeader,
    /// The leader and another member.
    EtcdMajority,
    Broker,
}

/// A fault with its target, and its longest duration in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Fault(pub Action, pub Target, u64);

const BOTH: &[Network] = &[Network::Etcd, Network::Broker];

/// Most faults last longer than a lease, some do not.
pub const FAULTS: [Fault; 16] = [
    Fault(Action::Kill, Target::Owner, 5_000),
    Fault(Action::Kill, Target::Follower, 5_000),
    Fault(Action::Kill, Target::EtcdLeader, 5_000),
    Fault(Action::Terminate, Target::Owner, 5_000),
    Fault(Action::Terminate, Target::Broker, 1_000),
    Fault(Action::Pause, Target::Owner, 7_000),
    Fault(Action::Pause, Target::Follower, 7_000),
    Fault(Action::Pause, Target::EtcdLeader, 7_000),
    Fault(Action::Pause, Target::EtcdMajority, 4_000),
    Fault(Action::Cut(BOTH), Target::Owner, 7_000),
    Fault(Action::Cut(&[Network::Etcd]), Target::Owner, 7_000),
    Fault(Action::Cut(&[Network::Broker]), Target::Owner, 7_000),
    Fault(Action::Cut(BOTH), Target::Follower, 7_000),
    Fault(Action::Cut(&[Network::Etcd]), Target::EtcdLeader, 7_000),
    Fault(Action::Clock(-3_600), Target::Owner, 7_000),
    Fault(Action::Clock(10), Target::Owner, 7_000),
];

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(action, target, _) = self;
        match action {
            Action::Kill => out.write_str("kill -9"),
            Action::Terminate => out.write_str("SIGTERM"),
            Action::Pause => out.write_str("SIGSTOP"),
            Action::Cut(BOTH) => out.write_str("links down"),
            Action::Cut(networks) => write!(out, "link down to {networks:?}"),
            Action::Clock(offset_s) => write!(out, "clock {offset_s:+} s"),
        }?;
        write!(out, " of {target:?}")
    }
}

impl Fault {
    pub fn duration(self, random: &mut Random) -> Duration {
        Duration::from_millis(200 + random.below(self.2))
    }

    /// Begins the fault and returns its victims.
    ///
    /// # Errors
    /// There is no owner or no leader of etcd, or a program cannot be run.
    pub fn begin(self, cluster: &mut Cluster, random: &mut Random) -> Result<Vec<usize>, String> {
        let victims = self.victims(cluster, random)?;
        for victim in &victims {
            let process = &mut cluster.processes[*victim];
            match self.0 {
                Action::Kill => drop(process.end(Signal::SIGKILL)),
                Action::Terminate => {
                    let status = process.end(Signal::SIGTERM);
                    if !status.success() {
                        return Err(format!("{} after SIGTERM: {status}", process.name));
                    }
                }
                Action::Pause => process.signal(Signal::SIGSTOP),
                Action::Cut(networks) => process.set_links(networks, false)?,
                Action::Clock(offset_s) => process.set_clock(offset_s),
            }
        }
        Ok(victims)
    }

    fn victims(self, cluster: &Cluster, random: &mut Random) -> Result<Vec<usize>, String> {
        let another = |all: std::ops::Range<usize>, than: usize, random: &mut Random| {
            let others: Vec<_> = all.filter(|process| *process != than).collect();
            others[usize::try_from(random.below(others.len() as u64)).unwrap()]
        };
        let owner = wait_for("no instance owns the store", || cluster.owner())?;
        let leader = wait_for("etcd has no leader", || cluster.etcd_leader())?;
        Ok(match self.1 {
            Target::Owner => vec![owner],
            Target::Follower => vec![another(Cluster::STORES, owner, random)],
            Target::EtcdLeader => vec![leader],
            Target::EtcdMajority => vec![leader, another(Cluster::ETCD, leader, random)],
            Target::Broker => vec![Cluster::BROKER],
        })
    }

    /// Ends the fault.
    pub fn end(self, cluster: &mut Cluster, victims: &[usize]) -> Result<(), String> {
        for victim in victims {
            let process = &mut cluster.processes[*victim];
            match self.0 {
                Action::Kill | Action::Terminate => process.start()?,
                Action::Pause => process.signal(Signal::SIGCONT),
                Action::Cut(networks) => process.set_links(networks, true)?,
                Action::Clock(_) => process.set_clock(0),
            }
        }
        Ok(())
    }
}
