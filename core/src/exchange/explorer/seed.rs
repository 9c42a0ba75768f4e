//! The pseudo-code from which the exchange comes, taken literally: a control that must fail (§5.2).

use std::collections::VecDeque;

use super::{Model, explore};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Message {
    source: usize,
    shared: u8,
    change: u8,
    value: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Literal {
    owner: usize,
    change: u8,
    value: u8,
    /// Of each leaf: its shared change id, and its value.
    leaves: [(u8, u8); 2],
    up: [VecDeque<Message>; 2],
    down: [VecDeque<Message>; 2],
    sets: u8,
    made: u8,
    duplicates: u8,
    reorders: u8,
    losses: u8,
    /// Deletions at the root: the row goes with its change ids.
    deletes: u8,
}

const ROOT: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Action {
    Set(usize),
    Delete,
    Up(usize),
    Down(usize),
    Duplicate(usize, bool),
    Reorder(usize, bool),
    Lose(usize, bool),
}

impl Literal {
    fn new() -> Self {
        Self {
            owner: ROOT,
            change: 0,
            value: 0,
            leaves: [(0, 0); 2],
            up: Default::default(),
            down: Default::default(),
            sets: 2,
            made: 0,
            duplicates: 0,
            reorders: 0,
            losses: 0,
            deletes: 0,
        }
    }

    fn channel(&mut self, at: usize, is_up: bool) -> &mut VecDeque<Message> {
        if is_up { &mut self.up[at] } else { &mut self.down[at] }
    }
}

impl Model for Literal {
    type Action = Action;

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.sets > 0 {
            actions.extend([Action::Set(0), Action::Set(1), Action::Set(ROOT)]);
        }
        if self.deletes > 0 && self.value != 0 {
            actions.push(Action::Delete);
        }
        for at in 0..2 {
            for (is_up, channel) in [(true, &self.up[at]), (false, &self.down[at])] {
                if channel.is_empty() {
                    continue;
                }
                actions.push(if is_up { Action::Up(at) } else { Action::Down(at) });
                if self.duplicates > 0 {
                    actions.push(Action::Duplicate(at, is_up));
                }
                if self.losses > 0 {
                    actions.push(Action::Lose(at, is_up));
                }
                if self.reorders > 0 && channel.len() > 1 {
                    actions.push(Action::Reorder(at, is_up));
                }
            }
        }
        actions
    }

    fn perform(&mut self, action: &Action) -> Result<(), String> {
        match *action {
            Action::Set(source) => {
                self.sets -= 1;
                self.made += 1;
                let (change, value) = (self.made, self.made);
                if source == ROOT {
                    (self.owner, self.change, self.value) = (ROOT, change, value);
                    let message = Message { source, shared: 0, change, value };
                    self.down.iter_mut().for_each(|down| down.push_back(message));
                } else {
                    let shared = self.leaves[source].0;
                    self.leaves[source].1 = value;
                    self.up[source].push_back(Message { source, shared, change, value });
                }
            }
            Action::Delete => {
                self.deletes -= 1;
                (self.owner, self.change, self.value) = (ROOT, 0, 0);
                let message = Message { source: ROOT, shared: 0, change: 0, value: 0 };
                self.down.iter_mut().for_each(|down| down.push_back(message));
            }
            Action::Up(at) => {
                let message = self.up[at].pop_front().unwrap();
                if self.owner == message.source || self.change == message.shared {
                    (self.owner, self.change) = (message.source, message.change);
                    self.value = message.value;
                    self.down[1 - at].push_back(message);
                }
            }
            Action::Down(at) => {
                let message = self.down[at].pop_front().unwrap();
                self.leaves[at] = (message.change, message.value);
            }
            Action::Duplicate(at, is_up) => {
                self.duplicates -= 1;
                let message = *self.channel(at, is_up).front().unwrap();
                self.channel(at, is_up).push_back(message);
            }
            Action::Reorder(at, is_up) => {
                self.reorders -= 1;
                self.channel(at, is_up).swap(0, 1);
            }
            Action::Lose(at, is_up) => {
                self.losses -= 1;
                self.channel(at, is_up).pop_front();
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let is_quiet = self.up.iter().chain(&self.down).all(VecDeque::is_empty);
        let differs = self.leaves.iter().any(|(_, value)| *value != self.value);
        if is_quiet && differs { Err("the values differ".to_owned()) } else { Ok(()) }
    }
}

#[test]
fn the_literal_pseudo_code_diverges() {
    for faulty in [
        Literal { duplicates: 1, ..Literal::new() },
        Literal { reorders: 1, ..Literal::new() },
        Literal { losses: 1, ..Literal::new() },
        Literal { deletes: 1, ..Literal::new() },
    ] {
        println!("{}", explore(faulty, 100_000).expect_err("it must diverge"));
    }
}
