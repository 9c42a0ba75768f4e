//! Two `mqkv store --etcd` behind Mosquitto, whose owner can be killed.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::brokers::{Mosquitto, kill, mqkv, wait_until};

const NAMES: [&str; 2] = ["a", "b"];

/// A cluster with one etcd. The binary must have the feature `cluster`.
pub struct Cluster {
    broker: Mosquitto,
    etcd: Child,
    etcd_url: String,
    stores: Vec<Child>,
    folder: TempDir,
}

impl Cluster {
    /// Starts all, and waits until an instance owns the store and the other one follows.
    pub fn start() -> Self {
        let (broker, folder) = (Mosquitto::start(), tempfile::tempdir().unwrap());
        let [client, peer] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer] = [client, peer].map(|listener| listener.local_addr().unwrap());
        let (etcd_url, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let program = std::env::var("MQKV_TEST_ETCD").unwrap_or_else(|_| "/usr/bin/etcd".to_owned());
        let mut command = Command::new(program);
        command.args(["--name", "n", "--data-dir"]).arg(folder.path().join("etcd"));
        command.args(["--listen-client-urls", &etcd_url, "--advertise-client-urls", &etcd_url]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("n={peer}")]).env_clear();
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let etcd = command.spawn().unwrap_or_else(|error| panic!("{error}: apt-get install etcd-server"));
        let mut cluster = Self { broker, etcd, etcd_url, stores: Vec::new(), folder };
        wait_until("etcd listens", || TcpStream::connect(client).ok());
        for index in 0..NAMES.len() {
            let store = cluster.spawn(index);
            cluster.stores.push(store);
            wait_until("the store is ready", || cluster.log(index).contains("\"ready\"").then_some(()));
        }
        wait_until("an instance owns the store", || cluster.owner());
        cluster
    }

    /// Returns the port of the broker.
    pub fn port(&self) -> u16 {
        self.broker.port()
    }

    /// Kills the owner, waits for the next one, and starts the killed one again.
    pub fn replace_owner(&mut self) {
        let (epoch, owner) = self.owner().unwrap();
        kill(&mut self.stores[owner]);
        wait_until("the other instance owns the store", || self.owner().filter(|(later, _)| *later > epoch));
        self.stores[owner] = self.spawn(owner);
    }

    fn spawn(&self, index: usize) -> Child {
        let mut command = mqkv(self.folder.path());
        let broker = format!("mqtt://127.0.0.1:{}", self.broker.port());
        command.args(["store", "-b", &broker, "--etcd", &self.etcd_url, "--instance", NAMES[index]]);
        command.args(["--failover", "1s", "-v", "--log", "json"]);
        let log =
            fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join(NAMES[index]));
        command.stdout(Stdio::null()).stderr(log.unwrap()).spawn().unwrap()
    }

    fn log(&self, index: usize) -> String {
        fs::read_to_string(self.folder.path().join(NAMES[index])).unwrap_or_default()
    }

    /// Returns the last epoch of an ownership, and its owner.
    fn owner(&self) -> Option<(u64, usize)> {
        let epoch_of = |index| -> Option<u64> {
            let log = self.log(index);
            let line = log.lines().rfind(|line| line.contains("\"cluster-took-over\""))?;
            let (_, rest) = line.split_once("\"epoch\":")?;
            rest.split(',').next()?.parse().ok()
        };
        (0..self.stores.len()).filter_map(|index| Some((epoch_of(index)?, index))).max()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stores.iter_mut().chain([&mut self.etcd]).for_each(kill);
    }
}
