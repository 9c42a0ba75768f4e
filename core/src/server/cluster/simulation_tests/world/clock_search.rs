//! Search of the space of clocks: three instances whose clocks are right, ahead or behind, in all orders of starting and ending.

use super::{Event, NAMES, Node, Wild, World};
use crate::server::cluster::Role;
use crate::server::cluster::clocks::{CLOCK_OFF_MS, GONE_MS};

/// What a clock is ahead of the right time, or behind it.
const OFFSETS_MS: [i64; 4] = [3_600_000, 0, -40_000, -3_600_000];
/// The time between two steps: longer than a lease, and than the time for which a clock must be off.
const STEP_MS: u64 = 5_000;
/// The time after the last step within which an instance with a right clock owns the store if it knows that most clocks are right, and
/// in any case.
const SOON_MS: u64 = 16_000;
const AT_LAST_MS: u64 = GONE_MS + SOON_MS;
/// The time in which an announcement is received.
const RECEPTION_MS: u64 = 100;

/// Searches all clocks, and the orders of so many steps that meet a condition. Each step starts an instance or kills it.
///
/// Returns the number of cases, and in how many of them versions are ahead in the end.
pub fn search(steps: u32, is_searched: impl Fn(&[usize]) -> bool) -> Result<(usize, usize), String> {
    let (clocks, orders) = (OFFSETS_MS.len().pow(3), NAMES.len().pow(steps));
    let (mut cases, mut ahead) = (0, 0);
    for case in 0..clocks * orders {
        let nodes = digits(case % orders, NAMES.len(), steps);
        let offsets_ms: Vec<_> =
            digits(case / orders, OFFSETS_MS.len(), 3).into_iter().map(|at| OFFSETS_MS[at]).collect();
        // The clock of an instance that never starts changes nothing, and without a right one nothing is promised.
        let is_other = |node| offsets_ms[node] == OFFSETS_MS[0] || nodes.contains(&node);
        let is_case = (0..NAMES.len()).all(is_other) && offsets_ms.iter().copied().any(is_right);
        if !is_case || !is_searched(&nodes) {
            continue;
        }
        cases += 1;
        let is_ahead = run(&offsets_ms, &nodes).map_err(|error| {
            let names: Vec<_> = nodes.iter().map(|node| NAMES[*node]).collect();
            format!("clocks {offsets_ms:?} ms, started or killed {names:?}: {error}")
        })?;
        ahead += usize::from(is_ahead);
    }
    Ok((cases, ahead))
}

fn digits(number: usize, base: usize, count: u32) -> Vec<usize> {
    (0..count).map(|at| number / base.pow(at) % base).collect()
}

/// Returns whether versions are ahead in the end. Then nothing is promised until an operator has lowered them.
fn run(offsets_ms: &[i64], nodes: &[usize]) -> Result<bool, String> {
    let mut world = World::with_clocks(offsets_ms);
    for node in nodes {
        world.start_or_kill(*node)?;
        world.run_until(world.ms + STEP_MS)?;
        if world.is_ahead == Some(true) {
            return Ok(true);
        }
    }
    world.is_quiet = true;
    let end_ms = world.ms;
    world.run_until(end_ms + SOON_MS)?;
    let knows_most_right = |node| {
        let clocks = world.known_clocks(node);
        clocks.iter().filter(|offset_ms| is_right(**offset_ms)).count() * 2 > clocks.len()
    };
    if world.lacks_owner(knows_most_right) {
        return Err(format!("{} ms: most clocks are right, and no instance owns the store", world.ms));
    }
    if world.lacks_owner(|_| true) {
        world.run_until(end_ms + AT_LAST_MS)?;
    }
    if world.lacks_owner(|_| true) {
        return Err(format!("{} ms: a clock is right, and no instance owns the store", world.ms));
    }
    Ok(world.is_ahead == Some(true))
}

fn is_right(offset_ms: i64) -> bool {
    offset_ms.unsigned_abs() <= CLOCK_OFF_MS
}

impl World {
    /// Returns a world without faults.
    fn with_clocks(offsets_ms: &[i64]) -> Self {
        let mut world = Self::new(0, None);
        (world.is_calm, world.has_stale_reads, world.has_space_faults) = (true, false, false);
        (world.wild_clocks, world.is_ahead) = (Wild::All, Some(false));
        for (node, offset_ms) in world.nodes.iter_mut().zip(offsets_ms) {
            node.wall_offset_ms = *offset_ms;
        }
        world.after(0, Event::Client { client: 0, waits_for: None });
        world.after(100, Event::Leases);
        world
    }

    fn start_or_kill(&mut self, node: usize) -> Result<(), String> {
        let Some(running) = self.nodes[node].running.take() else { return self.start(node) };
        self.watchers.retain(|(at, of, _), _| (*at, *of) != (node, running.run));
        Ok(())
    }

    /// Returns what the clocks are ahead of that an instance knows: its own, and those that were announced to it in the last minutes.
    fn known_clocks(&self, node: usize) -> Vec<i64> {
        let started_ms = self.nodes[node].running.as_ref().map_or(self.ms, |running| running.started_ms);
        let is_known = |(at, other): &(usize, &Node)| {
            let is_received = other.announced_ms > started_ms && other.announced_ms + RECEPTION_MS < self.ms;
            *at == node || (is_received && self.ms < other.announced_ms + GONE_MS)
        };
        self.nodes.iter().enumerate().filter(is_known).map(|(_, other)| other.wall_offset_ms).collect()
    }

    /// Checks that the first commit that is ahead is one of an instance that does not know of as many right clocks as are ahead.
    pub fn check_versions(&mut self) -> Result<(), String> {
        let head = &self.archive.head;
        let ahead_ms = head.wall_ms.max(head.greatest.ms).saturating_sub(self.wall_ms(0));
        if self.is_ahead != Some(false) || ahead_ms <= CLOCK_OFF_MS {
            return Ok(());
        }
        self.is_ahead = Some(true);
        let owner = head.owner.as_ref().map(|owner| owner.instance.clone()).unwrap_or_default();
        let node = NAMES.iter().position(|name| *name == owner).ok_or("a head without an owner is ahead")?;
        let clocks = self.known_clocks(node);
        let right = clocks.iter().filter(|offset_ms| is_right(**offset_ms)).count();
        // Of these, the instance may have heard of one sooner than is known here.
        let is_ahead = |other: &&Node| other.announced_ms > 0 && other.wall_offset_ms > 0;
        let ahead =
            self.nodes.iter().filter(is_ahead).filter(|other| !is_right(other.wall_offset_ms)).count();
        if right >= ahead {
            return Err(format!("{owner} commits {ahead_ms} ms ahead, and knows the clocks {clocks:?}"));
        }
        Ok(())
    }

    /// Whether no instance owns the store, although one runs whose clock is right, and that meets a condition; never once versions are
    /// ahead.
    fn lacks_owner(&self, meets: impl Fn(usize) -> bool) -> bool {
        let running = || {
            let nodes = self.nodes.iter().enumerate();
            nodes.filter_map(|(at, node)| Some((at, node.wall_offset_ms, node.running.as_ref()?)))
        };
        self.is_ahead == Some(false)
            && running().all(|(.., running)| running.instance.status().role != Role::Owner)
            && running().any(|(at, offset_ms, _)| is_right(offset_ms) && meets(at))
    }
}
