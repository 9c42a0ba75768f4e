//! A root and three leaves over links that fail, with SIGKILL of each node: in the end all of them have the same values, and
//! every acknowledged change of a leaf has a decision.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::client::{Client, Reply, Verb};
use crate::effort::Effort;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::scenarios::kills::copy;
use crate::server::{Server, mqkv};

const LEAVES: usize = 3;
const KEYS: u64 = 50;
const CLIENTS_PER_NODE: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Leaves try again after at most 30 seconds.
const SYNCHRONIZED_WITHIN: &str = "120s";
const ROOT_FILE: &str = "exchange = \"plant\"\nnode = \"root\"\nrole = \"root\"\nadmit = [\"leaf-*\"]\n\
                         [[rule]]\nkeys = [\"k/**\"]\nchange = \"leaves\"\n";

pub fn run(effort: Effort) -> Result<String, String> {
    detects_a_loss()?;
    let (rounds, changes, kills) = effort.pick((1, 10_000, 20), (50, 10_000, 20));
    let mut total = Outcome::default();
    for round in 0..rounds {
        let outcome = run_round(round, changes, kills).map_err(|error| format!("round {round}: {error}"))?;
        total.add(&outcome);
    }
    let Outcome { made, accepted, refused, merged, records } = total;
    if accepted == 0 || refused == 0 || records == 0 {
        return Err(format!("too little happened: {total:?}"));
    }
    Ok(format!(
        "{} kills, {} changes, {made} of them at leaves: {accepted} accepted, {refused} refused, {merged} merged; all nodes \
         have the same values; a leaf that goes back to earlier files was detected",
        rounds * kills,
        rounds * changes
    ))
}

/// What the leaves have counted, and the number of values in the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    made: u64,
    accepted: u64,
    refused: u64,
    merged: u64,
    records: u64,
}

impl Outcome {
    fn add(&mut self, other: &Self) {
        self.made += other.made;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.merged += other.merged;
        self.records += other.records;
    }
}

/// The root and its leaves, each behind a proxy.
pub(super) struct Star {
    /// The root is the first one.
    nodes: Vec<Mutex<Server>>,
    ports: Vec<u16>,
    links: Vec<Proxy>,
    /// Acknowledged changes of each node.
    pub(super) acknowledged: Vec<AtomicU64>,
    answered: AtomicU64,
}

impl Star {
    pub(super) fn start(seed: u64) -> Result<Self, String> {
        const OPTIONS: [&str; 4] = ["--data", "data", "--exchange", "node.toml"];
        let mut nodes = vec![Server::start_with_file("node.toml", ROOT_FILE, &OPTIONS)];
        let links: Vec<_> = (0..LEAVES).map(|_| Proxy::start(nodes[0].port(), None, seed)).collect();
        for (number, link) in links.iter().enumerate() {
            let root = format!("mqtt://127.0.0.1:{}", link.port());
            let file = format!(
                "exchange = \"plant\"\nnode = \"leaf-{number}\"\nrole = \"leaf\"\nroot = \"{root}\"\n"
            );
            nodes.push(Server::start_with_file("node.toml", &file, &OPTIONS));
        }
        let ports = nodes.iter().map(Server::port).collect();
        let acknowledged = nodes.iter().map(|_| AtomicU64::new(0)).collect();
        let nodes = nodes.into_iter().map(Mutex::new).collect();
        let star = Self { nodes, ports, links, acknowledged, answered: AtomicU64::new(0) };
        // A leaf does not know which keys take part before it has been linked.
        star.settle()?;
        Ok(star)
    }

    /// Changes random keys at a node.
    fn change(&self, node: usize, client: usize, count: u64, mut random: Random) {
        let id = format!("client-{node}-{client}");
        let mut connection = Client::new(&id, self.ports[node]);
        for number in 0..count {
            let key = format!("k/{}", random.below(KEYS));
            let verb = if random.one_in(4) { Verb::Del } else { Verb::Set(format!("{id}-{number}")) };
            let response = connection.request(&key, &verb, TIMEOUT);
            // A deletion of an absent key changes nothing.
            let is_change =
                response.is_ok_and(|response| matches!(response.reply, Reply::Done | Reply::Number(1)));
            self.acknowledged[node].fetch_add(u64::from(is_change), Ordering::SeqCst);
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn kill(&self, node: usize) {
        let mut server = self.nodes[node].lock().unwrap();
        server.kill();
        server.start_again();
    }

    /// Cuts, delays or takes down a link, or lets it work again.
    fn disturb(&self, random: &mut Random) {
        let link = &self.links[usize::try_from(random.below(LEAVES as u64)).unwrap()];
        match random.below(8) {
            0 | 1 => link.cut(),
            2 => link.delay(random.below(20)),
            // What was received before the cut has no acknowledgement.
            3 => {
                link.hold_replies(true);
                thread::sleep(Duration::from_millis(random.below(30)));
                link.cut();
                link.hold_replies(false);
            }
            4 => link.take_down(true),
            _ => {
                link.take_down(false);
                link.delay(0);
            }
        }
    }

    pub(super) fn mqkv(&self, node: usize, words: &[&str]) -> Result<String, String> {
        let url = format!("mqtt://127.0.0.1:{}", self.ports[node]);
        let server = self.nodes[node].lock().unwrap();
        let output = mqkv(server.folder(), &[words, &["-b", &url]].concat()).output().unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        if output.status.success() {
            Ok(stdout)
        } else {
            Err(format!("node {node}: {}: {}: {stdout}{stderr}", words.join(" "), output.status))
        }
    }

    pub(super) fn port(&self, node: usize) -> u16 {
        self.ports[node]
    }

    pub(super) fn take_link_down(&self, leaf: usize) {
        self.links[leaf - 1].take_down(true);
    }

    /// Waits until all changes have reached all nodes.
    pub(super) fn settle(&self) -> Result<(), String> {
        // A leaf's own changes first: the root knows those only that it has received.
        self.settle_leaves()?;
        self.mqkv(0, &["exchange", "status", "--wait", SYNCHRONIZED_WITHIN]).map(drop)
    }

    /// As [`Self::settle`], but for leaves that are not of the star.
    pub(super) fn settle_leaves(&self) -> Result<(), String> {
        self.links.iter().for_each(Proxy::restore);
        (1..=LEAVES).try_for_each(|node| {
            self.mqkv(node, &["exchange", "status", "--wait", SYNCHRONIZED_WITHIN]).map(drop)
        })
    }

    /// Checks that all nodes have the same values, and that the counters of the leaves add up.
    pub(super) fn check(&self) -> Result<Outcome, String> {
        let export = |node| -> Result<Vec<String>, String> {
            let values = self.mqkv(node, &["export", "k/*", "--no-version", "-q"])?;
            let mut lines: Vec<_> = values.lines().map(str::to_owned).collect();
            // The order is that of each store.
            lines.sort();
            Ok(lines)
        };
        let values = export(0)?;
        let mut outcome = Outcome { records: values.len() as u64, ..Outcome::default() };
        for node in 1..=LEAVES {
            let own = export(node)?;
            if own != values {
                return Err(format!("node {node} differs from the root: {}", differences(&own, &values)));
            }
            let status = self.mqkv(node, &["exchange", "status", "-j"])?;
            let [made, accepted, refused, merged, conflicts] =
                ["made", "accepted", "refused", "merged", "conflicts"].map(|name| number(&status, name));
            let acknowledged = self.acknowledged[node].load(Ordering::SeqCst);
            if made != accepted + refused + merged || conflicts != refused || made < acknowledged {
                return Err(format!("node {node} has acknowledged {acknowledged} changes: {status}"));
            }
            outcome.add(&Outcome { made, accepted, refused, merged, records: 0 });
        }
        Ok(outcome)
    }
}

/// Describes the values that one of both nodes has alone, the first ones.
fn differences(own: &[String], root: &[String]) -> String {
    let only = |these: &[String], others: &[String]| {
        let all: Vec<_> = these.iter().filter(|line| !others.contains(line)).cloned().collect();
        format!("{} values alone, such as {:#?}", all.len(), all.get(..3).unwrap_or(&all))
    };
    format!("it has {}\nthe root has {}", only(own, root), only(root, own))
}

/// Returns the number in a field of a JSON object.
fn number(object: &str, name: &str) -> u64 {
    let (_, rest) =
        object.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name} in {object}"));
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().unwrap()
}

fn run_round(round: u64, changes: u64, kills: u64) -> Result<Outcome, String> {
    let star = Star::start(round)?;
    let mut random = Random::new(round);
    let clients = ((LEAVES + 1) * CLIENTS_PER_NODE) as u64;
    assert_eq!(changes % clients, 0);
    thread::scope(|scope| {
        for node in 0..=LEAVES {
            for client in 0..CLIENTS_PER_NODE {
                let (star, random) = (&star, Random::new(random.next()));
                scope.spawn(move || star.change(node, client, changes / clients, random));
            }
        }
        let mut killed = 0;
        while star.answered.load(Ordering::SeqCst) < changes || killed < kills {
            thread::sleep(Duration::from_millis(10));
            // A leaf takes a second to connect again.
            if random.one_in(50) {
                star.disturb(&mut random);
            }
            // Spread over the whole run.
            if killed < kills && star.answered.load(Ordering::SeqCst) * (kills + 1) / changes > killed {
                star.kill(usize::try_from(random.below(LEAVES as u64 + 1)).unwrap());
                killed += 1;
            }
        }
    });
    star.settle()?;
    star.check()
}

/// Checks that a loss of acknowledged changes is detected: a leaf starts with files of an earlier moment.
fn detects_a_loss() -> Result<(), String> {
    let star = Star::start(0)?;
    star.change(1, 0, 100, Random::new(1));
    star.settle()?;
    star.check()?;
    let folder = star.nodes[1].lock().unwrap().folder().to_owned();
    star.nodes[1].lock().unwrap().kill();
    copy(&folder.join("data"), &folder.join("earlier"));
    star.nodes[1].lock().unwrap().start_again();
    star.change(1, 0, 100, Random::new(2));
    star.nodes[1].lock().unwrap().kill();
    fs::remove_dir_all(folder.join("data")).unwrap();
    copy(&folder.join("earlier"), &folder.join("data"));
    star.nodes[1].lock().unwrap().start_again();
    star.settle()?;
    match star.check() {
        Err(error) if error.contains("has acknowledged") => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err("a leaf that goes back to earlier files was not detected".to_owned()),
    }
}
