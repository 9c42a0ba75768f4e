//! Limits of `serve`.

use clap::Args;

use crate::broker::Settings;
use crate::commands::number::number;
use crate::commands::size::{self, Size};
use crate::ledger::RESERVE_BYTES;
use crate::protocol::key::VALUE_BYTES_MAX;
use crate::render::counted;
use crate::server::{LOGIN_FAILURES_MAX, Limits, Persistence, recorded_bytes_max};

/// Minimum of --queue-bytes-max: room for the packets that every client must be able to send.
const QUEUE_BYTES_MIN: u64 = 64 * 1024;

/// The default of --memory-max.
const MEMORY_MAX: u64 = 1024 * 1024 * 1024;

/// The least memory of the broker, whatever --memory-max: room for a few packets of a few megabytes.
const BROKER_MEMORY_MIN: u64 = 16 * 1024 * 1024;

/// What a watch of a key of mean length takes.
const WATCH_BYTES: u64 = 1024;

/// The least limit on the watches of all clients, whatever --memory-max.
const WATCHES_MIN: usize = 16 * 1024;

/// Limits of the server.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Maximum number of keys [default: 10,000,000]
    #[arg(long, value_name = "N", value_parser = number(1..=u64::MAX))]
    pub keys_max: Option<u64>,
    /// Maximum size of a value [default: 64M]
    ///
    /// A SIZE is a number of bytes, or one with K, M or G. The default is what fits into a packet.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, hide_short_help = true)]
    pub value_bytes_max: Option<u64>,
    /// Maximum memory held for clients [default: 1G]
    ///
    /// It bounds everything that clients make the server hold. Seven sixteenths are for keys and values: a SET above that is
    /// refused, as above --keys-max, until keys are deleted or expire. One sixteenth is for recorded replies, by which a
    /// write that is delivered again is detected. Three eighths, but at least 16M, are for the broker: messages that wait
    /// for clients, subscriptions, retained messages and the buffers of connections. A user, certificate or address that
    /// holds more than what is left free is refused or disconnected (reason code 0x97); others are not affected. The rest is
    /// for watched keys.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub memory_max: Option<u64>,
    /// Maximum number of connections [default: 10,000]
    #[arg(long, value_name = "N", value_parser = number(1..=u32::MAX), hide_short_help = true)]
    pub connections_max: Option<u32>,
    /// Maximum of watched keys per client [default: 100,000]
    #[arg(long, value_name = "N", value_parser = number(1..=u64::MAX), hide_short_help = true)]
    pub watches_max: Option<u64>,
    /// Maximum of waiting messages per client [default: 128M]
    ///
    /// A client with more is disconnected. The maximum packet size is at most half of it.
    #[arg(long, value_name = "SIZE", value_parser = parse_queue, hide_short_help = true)]
    pub queue_bytes_max: Option<u64>,
    /// Maximum of failed logins in a minute [default: 500]
    ///
    /// Counts the failed logins with a password from one address. Half of them may be of one user. Above it, logins from the address are refused with the reason code 0x9F, except
    /// with a password that has been correct since the start.
    #[arg(long, value_name = "N", value_parser = number(1..=u32::MAX), hide_short_help = true)]
    pub login_failures_max: Option<u32>,
}

impl LimitArgs {
    #[must_use]
    pub fn store(&self) -> Limits {
        // On a machine of 32 bits the address space is the limit.
        let or = |typed: Option<u64>, default: usize| {
            typed.map_or(default, |typed| usize::try_from(typed).unwrap_or(usize::MAX))
        };
        let default = Limits::default();
        Limits {
            keys_max: or(self.keys_max, default.keys_max),
            value_bytes_max: or(self.value_bytes_max, default.value_bytes_max).min(VALUE_BYTES_MAX),
            // The recorded replies may take a seventh of it besides.
            memory_bytes_max: (self.memory_max() / 16).saturating_mul(7),
            watches_max: usize::try_from(self.memory_max() / 8 / WATCH_BYTES)
                .unwrap_or(usize::MAX)
                .max(WATCHES_MIN),
            watches_per_connection_max: or(self.watches_max, default.watches_per_connection_max),
            ..default
        }
    }

    /// Returns the most failed logins from one address in a minute.
    #[must_use]
    pub fn login_failures_max(&self) -> u32 {
        self.login_failures_max.unwrap_or(LOGIN_FAILURES_MAX)
    }

    /// Returns the settings with the limits of the broker.
    #[must_use]
    pub fn limit(&self, settings: Settings) -> Settings {
        let connections_max = self.connections_max.unwrap_or(settings.connections_max);
        // At most the memory of an address space: divided first, so that it does not overflow.
        let memory = (self.memory_max() / 8).saturating_mul(3).max(BROKER_MEMORY_MIN);
        let memory_bytes_max = usize::try_from(memory).unwrap_or(usize::MAX);
        let queue = self.queue_bytes_max.unwrap_or(settings.session_queue_bytes_max as u64);
        // A queue larger than this could not be filled.
        let queue = queue.min(memory / 3);
        // Bounded by the default, so that the largest packet of MQTT is never exceeded.
        let packet_bytes_max = u32::try_from(queue / 2).unwrap_or(u32::MAX).min(settings.packet_bytes_max);
        Settings {
            connections_max,
            memory_bytes_max,
            session_queue_bytes_max: usize::try_from(queue).unwrap_or(usize::MAX),
            packet_bytes_max,
            ..settings
        }
    }

    /// Returns the memory of store and broker together.
    #[must_use]
    pub fn memory_max(&self) -> u64 {
        self.memory_max.unwrap_or(MEMORY_MAX)
    }
}

/// Describes the limits in effect, for the log.
#[must_use]
pub fn describe(
    store: &Limits,
    broker: &Settings,
    login_failures_max: u32,
    persistence: &Persistence,
) -> String {
    let size = |bytes: usize| Size(bytes as u64);
    // A value is not larger than the packet that contains it.
    let value_bytes_max = size(store.value_bytes_max).0.min(broker.packet_bytes_max.into());
    let reserve = reserve(persistence);
    format!(
        "limits: {}, {} of memory for them and {} for the broker, {} per value, {}, {} \
         and {} of waiting messages per client, {} per packet, {login_failures_max} failed logins per address and minute, {} of recorded replies{reserve}",
        counted(store.keys_max, "key"),
        Size(store.memory_bytes_max),
        size(broker.memory_bytes_max),
        Size(value_bytes_max),
        counted(broker.connections_max, "connection"),
        counted(store.watches_per_connection_max, "watched key"),
        size(broker.session_queue_bytes_max),
        Size(broker.packet_bytes_max.into()),
        Size(recorded_bytes_max(store)),
    )
}

/// Describes the limits of a store without listeners, for the log.
#[must_use]
pub fn describe_store(store: &Limits, persistence: &Persistence) -> String {
    format!(
        "limits: {}, {} of memory for them, {} per value, {} per client, {} of recorded replies{}",
        counted(store.keys_max, "key"),
        Size(store.memory_bytes_max),
        Size(store.value_bytes_max as u64),
        counted(store.watches_per_connection_max, "watched key"),
        Size(recorded_bytes_max(store)),
        reserve(persistence),
    )
}

fn reserve(persistence: &Persistence) -> String {
    match persistence {
        Persistence::None => String::new(),
        Persistence::Custom(_) | Persistence::All(_) => {
            format!(", {} of disk space for deletions", Size(RESERVE_BYTES))
        }
    }
}

fn parse_queue(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        bytes if bytes < QUEUE_BYTES_MIN => Err(format!("the size is at least {}", Size(QUEUE_BYTES_MIN))),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        limits: LimitArgs,
    }

    #[test]
    fn the_help_contains_the_defaults_in_effect() {
        let Only { limits } = Only::parse_from(["serve"]);
        let (store, broker) = (limits.store(), limits.limit(Settings::default()));
        let size = |bytes: usize| Size(bytes as u64).to_string();
        let defaults = [
            ("keys_max", store.keys_max.to_string()),
            ("value_bytes_max", Size(broker.packet_bytes_max.into()).to_string()),
            ("memory_max", Size(limits.memory_max()).to_string()),
            ("connections_max", broker.connections_max.to_string()),
            ("watches_max", store.watches_per_connection_max.to_string()),
            ("queue_bytes_max", size(broker.session_queue_bytes_max)),
            ("login_failures_max", limits.login_failures_max().to_string()),
        ]
        .map(|(name, default)| (name.to_owned(), default));
        assert!(store.value_bytes_max > broker.packet_bytes_max as usize, "a packet is what bounds it");
        let default = Settings::default();
        assert_eq!(store.memory_bytes_max, Limits::default().memory_bytes_max);
        assert_eq!(
            (broker.memory_bytes_max, broker.session_queue_bytes_max, broker.packet_bytes_max),
            (default.memory_bytes_max, default.session_queue_bytes_max, default.packet_bytes_max)
        );
        let only = Only::command();
        let documented = only.get_arguments().filter_map(|arg| {
            let help = arg.get_help()?.to_string();
            let default = help.split_once("[default: ")?.1.strip_suffix(']')?.replace(',', "");
            Some((arg.get_id().to_string(), default))
        });
        assert_eq!(documented.collect::<Vec<_>>(), defaults);
    }

    #[test]
    fn a_queue_holds_the_largest_packet() {
        let Only { limits: args } =
            Only::parse_from(["serve", "--connections-max=7", "--queue-bytes-max=1M"]);
        let settings = args.limit(Settings::default());
        assert_eq!((settings.packet_bytes_max, settings.connections_max), (1 << 19, 7));
        assert!(parse_queue("1K").is_err() && parse_queue("64K").is_ok());
        let Only { limits: args } = Only::parse_from(["serve", "--memory-max=64M"]);
        let settings = args.limit(Settings::default());
        assert_eq!(settings.memory_bytes_max, 24 << 20);
        assert_eq!((settings.session_queue_bytes_max, settings.packet_bytes_max), (8 << 20, 4 << 20));
        assert_eq!(settings.check(), Ok(()));
    }
}
