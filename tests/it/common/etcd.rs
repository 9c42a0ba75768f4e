//! Processes of etcd on free ports of this machine. `MQKV_TEST_ETCD` names another program than that of `etcd-server`.

use std::ffi::OsString;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use mqkv::ledger::etcd::operation::{EtcdError, Txn, TxnAnswer};
use mqkv::server::etcd::{Etcd, EtcdSettings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Place, reserved_port, wait_until_stopped};
use crate::a_watchdog::bounded;

/// The members of one etcd cluster. They are killed when this is dropped.
pub struct EtcdCluster {
    members: Vec<EtcdMember>,
}

struct EtcdMember {
    arguments: Vec<String>,
    url: String,
    process: Child,
}

impl EtcdCluster {
    /// Starts this many members and waits until all listen.
    pub fn start(place: &Place, count: usize) -> Self {
        Self::start_with(place, count, "http", &[])
    }

    /// As [`Self::start`], with the scheme of the client URLs and more options of each member.
    pub fn start_with(place: &Place, count: usize, scheme: &str, options: &[&str]) -> Self {
        let peers: Vec<_> = (0..count).map(|_| format!("http://127.0.0.1:{}", reserved_port())).collect();
        let all: Vec<_> = peers.iter().enumerate().map(|(index, peer)| format!("n{index}={peer}")).collect();
        let members = peers.iter().enumerate().map(|(index, peer)| {
            let url = format!("{scheme}://127.0.0.1:{}", reserved_port());
            let data = place.path(&format!("etcd-{index}")).display().to_string();
            let name = format!("n{index}");
            let arguments = [
                ["--name", &name],
                ["--data-dir", &data],
                ["--listen-client-urls", &url],
                ["--advertise-client-urls", &url],
                ["--listen-peer-urls", peer],
                ["--initial-advertise-peer-urls", peer],
                ["--initial-cluster", &all.join(",")],
                ["--initial-cluster-token", &peers[0]],
                ["--heartbeat-interval", "50"],
                ["--election-timeout", "500"],
                ["--log-level", "error"],
            ];
            let arguments = arguments.as_flattened().iter().copied().chain(options.iter().copied());
            let arguments: Vec<_> = arguments.map(str::to_owned).collect();
            let process = spawn(&arguments);
            EtcdMember { arguments, url, process }
        });
        let mut cluster = Self { members: members.collect() };
        assert!((0..count).all(|index| cluster.is_listening(index)), "etcd does not listen");
        cluster
    }

    /// The client URLs.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// Returns a client that has connected as soon as there was a leader.
    pub async fn client(&self) -> Etcd {
        connect(&EtcdSettings { endpoints: self.urls(), ..EtcdSettings::default() }).await
    }

    /// Returns the member that reports itself as the leader; waits for one.
    pub async fn leader(&self, etcd: &Etcd) -> usize {
        for _ in 0..600 {
            let all = etcd.status().await;
            let leader =
                all.iter().position(|(_, status)| status.as_ref().is_ok_and(|status| status.is_leader));
            if let Some(leader) = leader {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("etcd has no leader");
    }

    pub fn kill(&mut self, index: usize) {
        self.members[index].process.kill().unwrap();
        bounded(|| self.members[index].process.wait()).unwrap();
    }

    /// Starts a member again, with its data.
    pub fn restart(&mut self, index: usize) {
        self.members[index].process = spawn(&self.members[index].arguments);
        assert!(self.is_listening(index), "etcd has not started again");
    }

    /// Starts a killed member with what `etcdctl snapshot restore` puts into its folder, with the options that are given to
    /// `restore`.
    pub fn restore(&mut self, index: usize, restore: impl FnOnce(&[&str])) {
        const NAMES: [&str; 4] =
            ["--name", "--data-dir", "--initial-advertise-peer-urls", "--initial-cluster"];
        let arguments = self.members[index].arguments.clone();
        let (pairs, _) = arguments.as_chunks::<2>();
        let options = pairs.iter().filter(|pair| NAMES.contains(&pair[0].as_str()));
        let mut options: Vec<_> = options.flatten().map(String::as_str).collect();
        // Another one than before, as etcd advises.
        options.extend(["--initial-cluster-token", "restored"]);
        std::fs::remove_dir_all(&pairs.iter().find(|pair| pair[0] == "--data-dir").unwrap()[1]).unwrap();
        restore(&options);
        self.restart(index);
    }

    pub fn pause(&self, index: usize) {
        self.signal(index, Signal::SIGSTOP);
        wait_until_stopped(self.members[index].process.id());
    }

    pub fn resume(&self, index: usize) {
        self.signal(index, Signal::SIGCONT);
    }

    fn signal(&self, index: usize, signal: Signal) {
        kill(Pid::from_raw(self.members[index].process.id().cast_signed()), signal).unwrap();
    }

    fn is_listening(&mut self, index: usize) -> bool {
        let EtcdMember { url, process, .. } = &mut self.members[index];
        let address = url.split("//").nth(1).unwrap();
        for _ in 0..1500 {
            if TcpStream::connect(address).is_ok() {
                return true;
            }
            if process.try_wait().unwrap().is_some() {
                return false;
            }
            sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.process.kill();
            let _ = bounded(|| member.process.wait());
        }
    }
}

/// Returns the etcd that `MQKV_TEST_ETCD` names: one that `.ci/run` has chosen for its reads.
#[expect(clippy::disallowed_methods, reason = "the variable is the tests' own")]
pub fn chosen_program() -> Option<OsString> {
    std::env::var_os("MQKV_TEST_ETCD")
}

fn spawn(arguments: &[String]) -> Child {
    let program = chosen_program().unwrap_or_else(|| "/usr/bin/etcd".into());
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("{error}: apt-get install etcd-server"))
}

/// Connects as soon as there is a leader.
pub async fn connect(settings: &EtcdSettings) -> Etcd {
    let mut last = None;
    for _ in 0..200 {
        match Etcd::connect(settings).await {
            Ok(etcd) => return etcd,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{last:?}");
}

/// Asks for a transaction until its answer is certain; returns it with the number of those that were not.
pub async fn until_known(etcd: &Etcd, txn: &Txn) -> (Result<TxnAnswer, EtcdError>, usize) {
    for unknown in 0..600 {
        match etcd.txn(txn).await {
            Err(EtcdError::Unknown { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
            known => return (known, unknown),
        }
    }
    panic!("no certain answer");
}
