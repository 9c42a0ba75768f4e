//! Layers of settings and their resolution (pure).
//!
//! A higher layer wins. Three groups of settings are resolved together, because their parts have no meaning alone:
//!
//! - The broker: its address comes from one layer; `port` and `notls` of higher layers change it, those of lower layers
//!   do not. Credentials and TLS settings belong to the broker that their layer names: if a higher layer names another
//!   broker they are removed, except those of a context named with `-x`.
//! - Credentials: a token excludes user and password, and vice versa; a password belongs to the user of its layer.
//! - A certificate and its key.

use std::path::PathBuf;
use std::time::Duration;

use super::origin::Origin;
use super::setting::{EmbeddedStore, Setting, Value};
use crate::commands::CommandError;

/// Rank of a layer, the highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Options on the command line.
    Flags,
    /// The context of `-x`.
    TypedContext,
    /// The variables `MQKV_*`.
    Variables,
    /// The context of `MQKV_CONTEXT`.
    NamedContext,
    /// The variables `AIO_*`.
    Sdk,
    /// The default context of the file.
    DefaultContext,
}

/// A setting with its value and origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub setting: Setting,
    pub value: Value,
    pub origin: Origin,
}

/// The settings of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub rank: Rank,
    /// Each setting at most once.
    pub entries: Vec<Entry>,
}

/// The resolved layers: each setting at most once, with its origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    entries: Vec<(Rank, Entry)>,
}

use Setting::{
    AskPassword, Broker, Cafile, Certfile, Embedded, Hostname, Insecure, Json, Keyfile, Keypasswordfile,
    Notls, Output, PasswordFile, Port, SatFile, ServerName, Username,
};

/// Settings that name the broker.
const ENDPOINT: &[Setting] = &[Broker, Hostname, Embedded];
/// Settings that change the broker named by the same layer or a lower one.
const ENDPOINT_CHANGES: &[Setting] = &[Port, Notls];
/// Settings that must not be used for a broker named by a higher layer.
const BOUND_TO_BROKER: &[Setting] = &[
    Cafile,
    Certfile,
    Keyfile,
    Keypasswordfile,
    ServerName,
    Insecure,
    Username,
    PasswordFile,
    AskPassword,
    SatFile,
];
const USER: &[Setting] = &[Username, PasswordFile, AskPassword];
/// Groups of settings that come from one layer: the highest that has one of them.
const GROUPS: &[&[Setting]] = &[&[Certfile, Keyfile], &[PasswordFile, AskPassword], &[Output, Json]];
/// Settings that depend on another one: they are not combined with the one of a higher layer.
const DEPENDENTS: &[(&[Setting], Setting)] =
    &[(&[PasswordFile, AskPassword], Username), (&[Keypasswordfile], Keyfile)];
/// Pairs of settings that exclude each other within a layer.
const EXCLUSIVE: &[(Setting, Setting)] = &[
    (Broker, Hostname),
    (Broker, Port),
    (Broker, Embedded),
    (Hostname, Embedded),
    (Port, Embedded),
    (SatFile, Username),
    (SatFile, PasswordFile),
    (SatFile, AskPassword),
    (PasswordFile, AskPassword),
    (Output, Json),
];

impl Layer {
    /// Returns a layer without settings.
    #[must_use]
    pub fn new(rank: Rank) -> Self {
        Self { rank, entries: Vec::new() }
    }

    /// Adds a setting.
    pub fn put(&mut self, setting: Setting, value: Value, origin: Origin) {
        self.entries.push(Entry { setting, value, origin });
    }

    fn get(&self, setting: Setting) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.setting == setting)
    }

    /// Returns whether the layer has one of the settings, other than switched off.
    #[must_use]
    pub fn has_any(&self, settings: &[Setting]) -> bool {
        self.entries.iter().any(|entry| settings.contains(&entry.setting) && !entry.value.is_off())
    }

    /// Returns whether the layer names the broker or its port.
    #[must_use]
    pub fn names_target(&self) -> bool {
        self.has_any(ENDPOINT) || self.has_any(&[Port])
    }

    fn has_user_in_url(&self) -> bool {
        matches!(self.get(Broker), Some(Entry { value: Value::Url(url), .. }) if url.broker.user.is_some())
    }

    /// Sets the user name from the URL, if that contains one.
    fn set_user_of_url(&mut self) -> Result<(), CommandError> {
        let Some(Entry { value: Value::Url(url), origin, .. }) = self.get(Broker) else {
            return Ok(());
        };
        let Some(of_url) = url.broker.user.clone() else {
            return Ok(());
        };
        if let Some(Entry { value, origin, .. }) = self.get(Username) {
            return match value {
                Value::Text(user) if *user == of_url => Ok(()),
                _ => {
                    let what = "the URL contains another user";
                    let what =
                        if self.rank == Rank::Flags { "-u and the URL name different users" } else { what };
                    Err(origin.error(Username, what).hint("use one of the two"))
                }
            };
        }
        let origin = origin.clone();
        self.put(Username, Value::Text(of_url), origin);
        Ok(())
    }

    /// Returns this layer with the settings of another one that it neither has nor excludes.
    #[must_use]
    pub fn completed_by(mut self, other: &Self) -> Self {
        let is_excluded = |setting: Setting| {
            self.get(setting).is_some()
                || EXCLUSIVE.iter().any(|(one, two)| {
                    (*one == setting && self.get(*two).is_some())
                        || (*two == setting && self.get(*one).is_some())
                })
        };
        let kept: Vec<_> =
            other.entries.iter().filter(|entry| !is_excluded(entry.setting)).cloned().collect();
        self.entries.extend(kept);
        self.entries.sort_by_key(|entry| entry.setting);
        self
    }

    /// Checks the layer for settings that exclude each other.
    ///
    /// # Errors
    /// The first such pair.
    pub fn check(&self) -> Result<(), CommandError> {
        for (one, other) in EXCLUSIVE {
            let active = |setting: Setting| self.get(setting).filter(|entry| !entry.value.is_off());
            let (Some(first), Some(second)) = (active(*one), active(*other)) else { continue };
            if self.rank == Rank::Flags {
                // Clap rejects two options on one side of the verb, but neither the user of a URL nor two options of
                // which one stands before the verb and one after it.
                let is_typed = |setting: Setting| setting != Username || !self.has_user_in_url();
                let message = if is_typed(*one) && is_typed(*other) {
                    format!("--{} cannot be used with --{}", other.long(), one.long())
                } else {
                    "--sat-file cannot be used with a user name in the URL".to_owned()
                };
                return Err(CommandError::usage(message).hint("use one of the two"));
            }
            let first = match &first.origin {
                Origin::Variable(name) => name.clone(),
                _ => one.key(),
            };
            return Err(second.origin.error(*other, &format!("it cannot be used with {first}")));
        }
        Ok(())
    }
}

impl Resolved {
    /// Resolves the layers, the highest first.
    ///
    /// # Errors
    /// A layer contradicts itself.
    pub fn of(mut layers: Vec<Layer>) -> Result<Self, CommandError> {
        // With a broker on the command line the default context has no effect: its user does not think of it.
        if layers.iter().any(|layer| layer.rank == Rank::Flags && layer.names_target()) {
            layers.retain(|layer| layer.rank != Rank::DefaultContext);
        }
        for layer in &mut layers {
            layer.set_user_of_url()?;
            layer.check()?;
        }
        keep_one_broker(&mut layers);
        keep_one_kind_of_credentials(&mut layers);
        for (dependants, head) in DEPENDENTS {
            if let Some(first) = first_with(&layers, &[*head]) {
                let next = below(&layers, first).position(|layer| layer.has_any(&[*head]));
                remove_from(
                    &mut layers,
                    next.map(|next| first.saturating_add(next).saturating_add(1)),
                    dependants,
                );
            }
        }
        for group in GROUPS {
            let behind = first_with(&layers, group).map(|at| at.saturating_add(1));
            remove_from(&mut layers, behind, group);
        }
        let mut settings = Self::default();
        for layer in layers {
            for entry in layer.entries {
                if settings.get(entry.setting).is_none() {
                    settings.entries.push((layer.rank, entry));
                }
            }
        }
        Ok(settings)
    }

    /// Returns the entry of a setting; `None` if no layer sets it.
    #[must_use]
    pub fn get(&self, setting: Setting) -> Option<&Entry> {
        self.entries.iter().map(|(_, entry)| entry).find(|entry| entry.setting == setting)
    }

    /// Returns the layer of a setting.
    #[must_use]
    pub fn rank(&self, setting: Setting) -> Option<Rank> {
        self.entries.iter().find(|(_, entry)| entry.setting == setting).map(|(rank, _)| *rank)
    }

    /// Returns whether a switch is on.
    #[must_use]
    pub fn is_on(&self, setting: Setting) -> bool {
        self.get(setting).is_some_and(|entry| entry.value == Value::Switch(true))
    }

    /// Returns whether the store is in the memory of this process.
    #[must_use]
    pub fn has_memory_store(&self) -> bool {
        let embedded = self.get(Embedded);
        embedded.is_some_and(|entry| entry.value == Value::Store(EmbeddedStore::Memory))
    }

    #[must_use]
    pub fn text(&self, setting: Setting) -> Option<&str> {
        match self.get(setting) {
            Some(Entry { value: Value::Text(text), .. }) => Some(text),
            _ => None,
        }
    }

    #[must_use]
    pub fn path(&self, setting: Setting) -> Option<PathBuf> {
        match self.get(setting) {
            Some(Entry { value: Value::Path(path), .. }) => Some(path.clone()),
            _ => None,
        }
    }

    #[must_use]
    pub fn number(&self, setting: Setting) -> Option<u32> {
        match self.get(setting) {
            Some(Entry { value: Value::Number(number), .. }) => Some(*number),
            _ => None,
        }
    }

    #[must_use]
    pub fn wait(&self, setting: Setting) -> Option<Duration> {
        match self.get(setting) {
            Some(Entry { value: Value::Wait(wait), .. }) => Some(*wait),
            _ => None,
        }
    }

    /// Returns the setting that names the broker.
    #[must_use]
    pub fn entry_of_broker(&self) -> Option<&Entry> {
        ENDPOINT.iter().find_map(|setting| self.get(*setting))
    }

    /// Returns the layer that names the broker.
    #[must_use]
    pub fn rank_of_broker(&self) -> Option<Rank> {
        ENDPOINT.iter().find_map(|setting| self.rank(*setting))
    }
}

/// Keeps the broker of the highest layer that names one, and the settings of other layers that are compatible with it.
fn keep_one_broker(layers: &mut [Layer]) {
    let mut is_embedded_off = false;
    let place = layers.iter().position(|layer| {
        is_embedded_off |= layer.get(Embedded).is_some_and(|entry| entry.value.is_off());
        layer.has_any(if is_embedded_off { &[Broker, Hostname] } else { ENDPOINT })
    });
    if let Some(place) = place {
        let is_of_other = |layer: &Layer| layer.has_any(ENDPOINT) && layer.rank != Rank::TypedContext;
        let other = below(layers, place).position(is_of_other);
        let other = other.map(|other| place.saturating_add(other).saturating_add(1));
        remove_from(layers, other, BOUND_TO_BROKER);
        remove_from(layers, Some(place.saturating_add(1)), ENDPOINT_CHANGES);
        remove_from(layers, Some(place.saturating_add(1)), ENDPOINT);
    } else {
        remove_from(layers, Some(0), ENDPOINT);
    }
    for layer in layers {
        layer.entries.retain(|entry| entry.setting != Embedded || !entry.value.is_off());
    }
}

fn keep_one_kind_of_credentials(layers: &mut [Layer]) {
    let (token, user) = (first_with(layers, &[SatFile]), first_with(layers, USER));
    match (token, user) {
        (Some(token), Some(user)) if token < user => remove_from(layers, Some(user), USER),
        (Some(token), Some(_)) => remove_from(layers, Some(token), &[SatFile]),
        _ => {}
    }
}

fn first_with(layers: &[Layer], settings: &[Setting]) -> Option<usize> {
    layers.iter().position(|layer| layer.has_any(settings))
}

/// Returns the layers below one.
fn below(layers: &[Layer], at: usize) -> impl Iterator<Item = &Layer> {
    layers.iter().skip(at.saturating_add(1))
}

/// Removes settings from the layer at `from` and from all below it.
fn remove_from(layers: &mut [Layer], from: Option<usize>, settings: &[Setting]) {
    for layer in layers.iter_mut().skip(from.unwrap_or(usize::MAX)) {
        layer.entries.retain(|entry| !settings.contains(&entry.setting));
    }
}

#[cfg(test)]
mod tests;
