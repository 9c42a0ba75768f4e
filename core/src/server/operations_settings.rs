//! Settings of the monitoring.

use std::net::SocketAddr;
use std::time::Duration;

/// Settings of the monitoring. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationsSettings {
    /// The admin listeners: HTTP with the status page, the metrics and the health check.
    pub admin: Vec<AdminSettings>,
    /// Interval of the updates of the `$SYS` topics. None: there are none.
    pub sys_interval: Option<Duration>,
}

/// Settings of an admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// The address to listen on. Port 0: any free port.
    pub address: SocketAddr,
    /// Host names that requests may use, in addition to `localhost` and addresses. Others are refused because of DNS
    /// rebinding.
    pub names: Vec<String>,
}
