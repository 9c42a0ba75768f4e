//! Layers of settings and their resolution (pure).
//!
//! A higher layer wins. Three groups of settings are resolved together, because their parts have no meaning alone:
//!
//! - The broker: its address comes from one layer; `port` and `notls` of higher layers change it, those of lower layers
//!   do not. Credentials and TLS settings belong to the broker that their layer names: if a higher layer names another
//!   broker they are removed, except those of a context named with `-x`.
//! - Credentials: a token excludes user and password, and vice versa; a password belongs to the user of its layer.
//! - A certificate and its key.

use super::origin::{Rank, Source};
use super::setting::{Setting, Settings, Sourced};
use crate::commands::CommandError;

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

impl Settings {
    /// Resolves layers: returns each setting of the highest layer that has it, as far as it is compatible with higher layers.
    pub fn resolve(mut layers: Vec<Self>) -> Result<Self, CommandError> {
        layers.sort_by_key(Self::rank);
        // With a broker on the command line the default context has no effect: its user does not think of it.
        if layers.iter().any(|layer| layer.rank() == Some(Rank::Flags) && layer.names_target()) {
            layers.retain(|layer| layer.rank() != Some(Rank::DefaultContext));
        }
        for layer in &mut layers {
            layer.set_user_of_url()?;
            layer.check()?;
        }
        keep_one_broker(&mut layers);
        keep_one_kind_of_credentials(&mut layers);
        for (dependants, head) in DEPENDENTS {
            let has_head = |layer: &Self| layer.has_any(&[*head]);
            if let Some(first) = layers.iter().position(has_head) {
                let next = first_below(&layers, first, has_head);
                remove_from(&mut layers, next, dependants);
            }
        }
        for group in GROUPS {
            if let Some(at) = first_with(&layers, group) {
                remove_from(&mut layers, Some(at.saturating_add(1)), group);
            }
        }
        Ok(layers.iter().fold(Self::default(), |higher, lower| higher.completed_by(lower, |_| false)))
    }

    /// Returns the rank of a layer; `None` without settings.
    fn rank(&self) -> Option<Rank> {
        self.iter().next().map(|(_, _, origin)| origin.rank)
    }

    /// Returns whether the layer names the broker or its port.
    #[must_use]
    pub fn names_target(&self) -> bool {
        self.has_any(ENDPOINT) || self.has_any(&[Port])
    }

    /// Returns the setting that names the broker.
    #[must_use]
    pub fn broker_setting(&self) -> Option<Setting> {
        ENDPOINT.iter().copied().find(|setting| self.get(*setting).is_some())
    }

    /// Returns the layer that names the broker.
    #[must_use]
    pub fn rank_of_broker(&self) -> Option<Rank> {
        self.get(self.broker_setting()?).map(|(_, origin)| origin.rank)
    }

    /// Sets the user name from the URL, if that contains one.
    fn set_user_of_url(&mut self) -> Result<(), CommandError> {
        let Some(Sourced { value: url, origin }) = &self.broker else { return Ok(()) };
        let Some(value) = url.broker.user.clone() else { return Ok(()) };
        match &self.username {
            None => self.username = Some(Sourced { value, origin: origin.clone() }),
            Some(username) if username.value == value => {}
            Some(Sourced { origin, .. }) => {
                let what = match origin.rank {
                    Rank::Flags => "-u and the URL name different users",
                    _ => "the URL contains another user",
                };
                return Err(origin.error(Username, what).hint("use one of the two"));
            }
        }
        Ok(())
    }

    /// Returns this layer with the settings of another one that it neither has nor excludes.
    #[must_use]
    pub fn extended_by(self, other: &Self) -> Self {
        let own = self.clone();
        self.completed_by(other, |setting| {
            EXCLUSIVE.iter().any(|(one, two)| {
                (*one == setting && own.get(*two).is_some()) || (*two == setting && own.get(*one).is_some())
            })
        })
    }

    /// Returns this layer with the settings of another one that it does not have, and that are not excluded.
    fn completed_by(mut self, other: &Self, is_excluded: impl Fn(Setting) -> bool) -> Self {
        for setting in Setting::all() {
            if self.get(setting).is_none() && !is_excluded(setting) {
                self.copy(setting, other);
            }
        }
        self
    }

    /// Checks the layer for settings that exclude each other.
    ///
    /// # Errors
    /// The first such pair.
    pub fn check(&self) -> Result<(), CommandError> {
        let active = |setting: Setting| {
            self.get(setting).filter(|(value, _)| !value.is_off()).map(|(_, origin)| origin)
        };
        for (one, other) in EXCLUSIVE {
            let (Some(first), Some(second)) = (active(*one), active(*other)) else { continue };
            if first.rank == Rank::Flags {
                // Clap rejects two options on one side of the verb, but neither the user of a URL nor two options of
                // which one stands before the verb and one after it.
                let has_user_in_url = self.broker.as_ref().is_some_and(|url| url.value.broker.user.is_some());
                let message = if has_user_in_url && [*one, *other].contains(&Username) {
                    "--sat-file cannot be used with a user name in the URL".to_owned()
                } else {
                    format!("--{} cannot be used with --{}", other.long(), one.long())
                };
                return Err(CommandError::usage(message).hint("use one of the two"));
            }
            let first = match &first.source {
                Source::Variable(name) => name,
                Source::Flag | Source::File(_) => one.key(),
            };
            return Err(second.error(*other, &format!("it cannot be used with {first}")));
        }
        Ok(())
    }
}

/// Keeps the broker of the highest layer that names one, and the settings of other layers that are compatible with it.
fn keep_one_broker(layers: &mut [Settings]) {
    let mut is_embedded_off = false;
    let place = layers.iter().position(|layer| {
        is_embedded_off |= layer.embedded.is_some() && !layer.has_any(&[Embedded]);
        layer.has_any(if is_embedded_off { &[Broker, Hostname] } else { ENDPOINT })
    });
    if let Some(place) = place {
        let is_of_other =
            |layer: &Settings| layer.has_any(ENDPOINT) && layer.rank() != Some(Rank::TypedContext);
        let other = first_below(layers, place, is_of_other);
        remove_from(layers, other, BOUND_TO_BROKER);
        remove_from(layers, Some(place.saturating_add(1)), ENDPOINT_CHANGES);
        remove_from(layers, Some(place.saturating_add(1)), ENDPOINT);
    } else {
        remove_from(layers, Some(0), ENDPOINT);
    }
    for layer in layers {
        if !layer.has_any(&[Embedded]) {
            layer.embedded = None;
        }
    }
}

fn keep_one_kind_of_credentials(layers: &mut [Settings]) {
    let (token, user) = (first_with(layers, &[SatFile]), first_with(layers, USER));
    match (token, user) {
        (Some(token), Some(user)) if token < user => remove_from(layers, Some(user), USER),
        (Some(token), Some(_)) => remove_from(layers, Some(token), &[SatFile]),
        _ => {}
    }
}

fn first_with(layers: &[Settings], settings: &[Setting]) -> Option<usize> {
    layers.iter().position(|layer| layer.has_any(settings))
}

/// Returns the first such layer below the one at `place`.
fn first_below(layers: &[Settings], place: usize, is_such: impl Fn(&Settings) -> bool) -> Option<usize> {
    let below = layers.iter().enumerate().skip(place.saturating_add(1));
    below.filter(|(_, layer)| is_such(layer)).map(|(at, _)| at).next()
}

/// Removes settings from the layer at `from` and from all below it.
fn remove_from(layers: &mut [Settings], from: Option<usize>, settings: &[Setting]) {
    for layer in layers.iter_mut().skip(from.unwrap_or(usize::MAX)) {
        settings.iter().for_each(|setting| layer.remove(*setting));
    }
}

#[cfg(test)]
mod tests;
