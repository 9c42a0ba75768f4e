//! A broker without a store, for `mqkv store`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, spawn};

use mqkv::broker::{Hooks, ListenerSettings, Server, Settings};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::a_watchdog::bounded;

/// A running broker on a port of this machine, with persistent sessions in memory.
pub struct PlainBroker {
    port: u16,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl PlainBroker {
    pub fn start() -> Self {
        Self::start_at(0)
    }

    fn start_at(port: u16) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (started, ports) = channel();
        let thread = spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = ListenerSettings::plain(SocketAddr::from(([127, 0, 0, 1], port)));
                let settings = Settings { listeners: vec![listener], ..Settings::default() };
                let server = Server::start(settings, Hooks::new(Arc::new(()))).await.unwrap();
                started.send(server.addresses()[0].port()).unwrap();
                // An error: the test has failed.
                let _ = stopped.await;
                server.shutdown().await;
            });
        });
        Self { port: bounded(|| ports.recv()).unwrap(), running: Some((stop, thread)) }
    }

    /// Stops the broker, which forgets all sessions, and starts another one on its port.
    pub fn restart(&mut self) {
        self.stop();
        *self = Self::start_at(self.port);
    }

    fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            let _ = stop.send(());
            bounded(|| thread.join()).unwrap();
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }
}

impl Drop for PlainBroker {
    fn drop(&mut self) {
        self.stop();
    }
}
