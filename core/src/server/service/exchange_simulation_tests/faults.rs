//! Faults of the simulation, and what operators do.

use super::checks::text;
use super::mistakes::Mistake;
use super::node::{NAMES, Node, role, rules};
use super::world::{Connection, DAY_MS, World};
use crate::exchange::Exchange;
use crate::exchange::effects::{Cause, Effects};
use crate::protocol::exchange::Command;
use crate::server::exchange::command::execute;

impl World {
    /// Loses, doubles and reorders frames.
    pub fn disturb(&mut self, at: usize) -> Result<(), String> {
        self.poll();
        let is_up = self.below(2) == 0;
        let Connection { up, down, .. } = &self.connections[at];
        let len = if is_up { up.len() } else { down.len() };
        if len == 0 {
            return Ok(());
        }
        let index = self.index(len);
        let frames = if is_up { &mut self.connections[at].up } else { &mut self.connections[at].down };
        match self.random.below(4) {
            0 => {
                self.figures.lost += 1;
                frames.remove(index);
                return Ok(());
            }
            1 => {
                self.figures.doubled += 1;
                let frame = frames[index].clone();
                frames.push(frame);
            }
            _ => self.figures.reordered += u64::from(index > 0),
        }
        if is_up { self.deliver_up(at, index) } else { self.deliver_down(at, index) }
    }

    /// One fault of a node, or of a leaf.
    pub fn fault(&mut self, at: usize, leaf: usize) -> Result<(), String> {
        match self.below(42) {
            // The power is cut, or the process is killed, at one of the next operations.
            0..12 => {
                let cut_after = self.below(60);
                self.nodes[at].disk.set_faults(|faults| faults.cut_after = Some(cut_after));
            }
            12..16 => self.nodes[at].disk.set_faults(|faults| faults.fails_next_sync = true),
            16..19 => {
                self.figures.full_disks += 1;
                let room = self.below(6) * 60_000;
                self.nodes[at].disk.set_faults(|faults| faults.bytes_max = Some(room));
            }
            19..22 => self.end_faults(at),
            22..24 => {
                let months = 1 + self.below(3);
                self.figures.months_offline += u64::from(self.connections[leaf].number.is_none());
                self.ms += months * 30 * DAY_MS;
            }
            24..26 => self.ms += self.random.below(20 * 60_000),
            26..29 => {
                let copy = self.nodes[at].disk.copy();
                copy.set_faults(|faults| (faults.cut_after, faults.bytes_max) = (None, None));
                self.nodes[at].backup.get_or_insert(copy);
            }
            29 | 30 => self.restore(at)?,
            36 if self.below(3) == 0 => self.replace(leaf)?,
            31 => {
                self.figures.dropped_leaves += 1;
                self.command(0, Command::DropLeaf { name: NAMES[leaf].to_owned() })?;
            }
            32 => self.command(0, Command::AddLeaf { name: NAMES[leaf].to_owned(), is_replaced: false })?,
            33 => {
                let name = if at == 0 { Some(NAMES[leaf].to_owned()) } else { None };
                self.command(at, Command::Resync { name, is_new_root: false })?;
            }
            37 if self.below(3) == 0 => self.replace_root()?,
            38 if at > 0 && self.below(3) == 0 => self.join_new_root(at)?,
            34 | 35 => self.change_rules(),
            _ => self.start(at)?,
        }
        Ok(())
    }

    pub fn end_faults(&mut self, at: usize) {
        self.nodes[at].disk.set_faults(|faults| {
            (faults.cut_after, faults.bytes_max, faults.fails_next_sync) = (None, None, false);
        });
    }

    fn command(&mut self, at: usize, command: Command) -> Result<(), String> {
        let Some(process) = self.nodes[at].process.as_ref().filter(|process| !process.has_failed) else {
            return Ok(());
        };
        self.trace(|| format!("{}: {command:?}", NAMES[at]));
        process.with(self.ms, |state, publisher, now| {
            let call = |exchange: &mut Exchange, now_ms, values: &dyn crate::exchange::effects::Values| {
                execute(exchange, command, now_ms, values)
            };
            state.with_exchange(publisher, now, call)
        });
        self.commit(at)
    }

    /// The rules of the root change, while it runs or with its next start.
    fn change_rules(&mut self) {
        self.figures.changed_rules += 1;
        let number = self.index(3);
        self.trace(|| format!("rules {number}"));
        let rules_after = rules(number);
        let left = self.keys.iter().filter(|key| rules_after.find(key).is_none());
        self.ledger.without_rule.extend(left.cloned());
        if let Some(exchange) = &mut self.nodes[0].settings.exchange {
            exchange.role = role(0, number);
        }
        let Some(process) = self.nodes[0].process.as_ref().filter(|process| !process.has_failed) else {
            return;
        };
        process.with(self.ms, |state, publisher, now| {
            state.with_exchange(publisher, now, |exchange, _, _| match exchange {
                Exchange::Root(root) => ((), root.set_rules(rules_after)),
                Exchange::Leaf(_) => ((), Effects::default()),
            });
        });
    }

    /// Replaces the disk of a node by its backup.
    fn restore(&mut self, at: usize) -> Result<(), String> {
        let Some(backup) = self.nodes[at].backup.take() else { return Ok(()) };
        self.trace(|| format!("{} is restored", NAMES[at]));
        self.end(at);
        self.nodes[at].disk = backup;
        if at == 0 {
            self.figures.restored_roots += 1;
            self.ledger.is_root_restored = true;
        } else {
            self.figures.restored_leaves += 1;
            self.ledger.untracked.insert(at);
        }
        self.start(at)
    }

    /// Another folder takes the name of a leaf.
    fn replace(&mut self, at: usize) -> Result<(), String> {
        if self.nodes[0].process.as_ref().is_none_or(|process| process.has_failed) {
            return Ok(());
        }
        self.trace(|| format!("{} is replaced", NAMES[at]));
        self.figures.replaced_leaves += 1;
        self.ledger.untracked.insert(at);
        self.end(at);
        self.nodes[at] = Node::new(at, self.nodes[at].ahead_ms);
        self.start(at)?;
        self.command(0, Command::AddLeaf { name: NAMES[at].to_owned(), is_replaced: true })
    }

    /// A root with another folder takes the place of the root. The operators of some leaves have them join it at once.
    pub fn replace_root(&mut self) -> Result<(), String> {
        self.trace(|| "the root is replaced".to_owned());
        self.figures.new_roots += 1;
        self.end(0);
        let Node { settings, ahead_ms, backup, .. } = &mut self.nodes[0];
        let (settings, backup) = (settings.clone(), backup.take());
        self.nodes[0] = Node { settings, backup, ..Node::new(0, *ahead_ms) };
        // What the root has accepted and the leaves have is decided again.
        self.ledger.is_root_restored = true;
        self.start(0)?;
        (1..self.nodes.len())
            .try_for_each(|at| if self.below(2) == 0 { self.join_new_root(at) } else { Ok(()) })
    }

    /// An operator of a leaf has it join the root that answers next.
    fn join_new_root(&mut self, at: usize) -> Result<(), String> {
        self.ledger.rejoined.insert(at);
        self.command(at, Command::Resync { name: None, is_new_root: true })
    }

    /// An operator reads why a leaf is not linked: the root was restored, or lost power, before it knew of the folder, or
    /// it is another root.
    pub fn help_if_refused(&mut self, at: usize) -> Result<(), String> {
        let ended = self.process(at).leaf(|leaf| leaf.ended().map(|ended| ended.code.clone()));
        match ended.as_deref() {
            Some(code) if code == Cause::OtherStore.as_str() => {
                self.command(0, Command::AddLeaf { name: NAMES[at].to_owned(), is_replaced: true })
            }
            Some(code) if code == Cause::OtherRoot.as_str() => self.join_new_root(at),
            _ => Ok(()),
        }
    }

    /// Ends a process whose disk has lost power.
    pub fn end_if_off(&mut self, at: usize) -> Result<(), String> {
        if !self.nodes[at].disk.is_off() {
            return Ok(());
        }
        self.end(at);
        // Some stay off for a while.
        if self.is_calm || self.below(3) > 0 { self.start(at) } else { Ok(()) }
    }

    /// Ends a process, by a power cut or a kill.
    fn end(&mut self, at: usize) {
        self.nodes[at].process = None;
        for leaf in 1..self.nodes.len() {
            if at == 0 || at == leaf {
                self.disconnect(leaf);
            }
        }
        if at == 0 {
            self.lost_connections.clear();
        }
        let is_killed = self.mistake != Some(Mistake::IgnoresSyncs) && self.below(3) == 0;
        self.trace(|| format!("{} ends, killed: {is_killed}", NAMES[at]));
        let node = &mut self.nodes[at];
        if is_killed {
            self.figures.kills += 1;
            node.disk = node.disk.after_kill();
        } else {
            self.figures.power_cuts += 1;
            node.disk = node.disk.after_power_cut(&mut self.random);
        }
    }

    /// Starts a node that does not run, and checks what it has loaded.
    pub fn start(&mut self, at: usize) -> Result<(), String> {
        if self.nodes[at].process.is_some() {
            return Ok(());
        }
        self.nodes[at].disk.set_faults(|faults| (faults.bytes_max, faults.fails_next_sync) = (None, false));
        // Some power cuts come while the files are created or repaired.
        if !self.is_calm && self.below(8) == 0 {
            let cut_after = self.below(30);
            self.nodes[at].disk.set_faults(|faults| faults.cut_after = Some(cut_after));
        }
        while let Err(error) = self.nodes[at].start(self.ms, &mut self.random) {
            if !self.nodes[at].disk.is_off() {
                return Err(format!("{}: {error}", NAMES[at]));
            }
            self.figures.early_ends += 1;
            self.end(at);
        }
        self.trace(|| format!("{} has started", NAMES[at]));
        let rows = self.process(at).rows();
        if at == 0 {
            self.committed_ver = self.process(0).root(crate::exchange::root::Root::ver);
            self.ledger.note_decisions(rows.iter().map(|(id, row)| (id, row)))?;
        }
        self.check_node(at)
    }

    /// Kills all nodes: they must start with the same rows and values.
    #[expect(clippy::needless_range_loop, reason = "the number of a node is an index of several tables")]
    pub fn restart_all(&mut self) -> Result<(), String> {
        for at in 0..self.nodes.len() {
            let values = |world: &Self| {
                world.keys.iter().map(|key| world.process(at).value(key, world.ms)).collect::<Vec<_>>()
            };
            let (rows, before) = (self.process(at).rows(), values(self));
            // Keys without a rule may be in memory only. The rules may be others after the restart.
            let concerned: Vec<_> = self.keys.iter().map(|key| self.process(at).concerns(key)).collect();
            self.nodes[at].process = None;
            self.nodes[at].disk = self.nodes[at].disk.after_kill();
            self.nodes[at].start(self.ms, &mut self.random)?;
            if rows != self.process(at).rows() {
                return Err(format!("I7: {} has other rows after a restart", NAMES[at]));
            }
            let after = values(self);
            let other = (0..after.len()).find(|&key| concerned[key] && before[key] != after[key]);
            if let Some(key) = other {
                let (key, before, after) = (text(&self.keys[key]), &before[key], &after[key]);
                return Err(format!("I7: {key} of {}: {before:?}, after a restart {after:?}", NAMES[at]));
            }
        }
        Ok(())
    }
}
