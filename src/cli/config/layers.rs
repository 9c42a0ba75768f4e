//! Layers of settings, one over the other: which one has the say on what (pure).
//!
//! A higher layer always wins. Three things are taken together, for their parts mean nothing apart:
//!
//! - The broker: where it is comes from one layer; `port` and `notls` of the layers above it change it, those below do
//!   not. Credentials and what is for TLS belong to the broker that their layer names: where a higher layer names
//!   another one they are left out, unless the context was typed beside it.
//! - Credentials: a token excludes user and password, and the other way round; a password belongs to the user that its
//!   layer names.
//! - A certificate and its key.

use std::path::PathBuf;
use std::time::Duration;

use super::origin::Origin;
use super::setting::{Setting, Value};
use crate::commands::CommandError;

/// The layers, the highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// What was typed.
    Flags,
    /// The context that was typed.
    TypedContext,
    /// The variables `MQKV_*`.
    Variables,
    /// The context that a variable names.
    NamedContext,
    /// The variables `AIO_*`.
    Sdk,
    /// The context that the file names.
    DefaultContext,
}

/// A setting with where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which setting.
    pub setting: Setting,
    /// What it is set to.
    pub value: Value,
    /// Where it comes from.
    pub origin: Origin,
}

/// The settings of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// How high it is.
    pub rank: Rank,
    /// Its settings, each at most once.
    pub entries: Vec<Entry>,
}

/// What all layers come to: each setting at most once, with where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    entries: Vec<(Rank, Entry)>,
}

use Setting::{
    AskPassword, Broker, Cafile, Certfile, Embedded, Hostname, Insecure, Json, Keyfile, Keypasswordfile,
    Notls, Output, PasswordFile, Port, SatFile, ServerName, Username,
};

/// What says where the broker is.
const PLACE: &[Setting] = &[Broker, Hostname, Embedded];
/// What changes the place that the same layer or a lower one names.
const OF_PLACE: &[Setting] = &[Port, Notls];
/// What must not go to another broker than its own.
const OF_BROKER: &[Setting] = &[
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
/// Settings of which the highest layer that has one has the say on all.
const TOGETHER: &[&[Setting]] = &[&[Certfile, Keyfile], &[PasswordFile, AskPassword], &[Output, Json]];
/// What belongs to something that a layer names: where another layer's is taken, it goes with its own.
const BELONGS: &[(&[Setting], Setting)] =
    &[(&[PasswordFile, AskPassword], Username), (&[Keypasswordfile], Keyfile)];
/// What one layer cannot say both of.
const EXCLUDE: &[(Setting, Setting)] = &[
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
    /// A layer without settings.
    #[must_use]
    pub fn new(rank: Rank) -> Self {
        Self { rank, entries: Vec::new() }
    }

    /// Adds a setting.
    pub fn put(&mut self, setting: Setting, value: Value, origin: Origin) {
        self.entries.push(Entry { setting, value, origin });
    }

    /// The setting, if the layer says anything of it.
    fn get(&self, setting: Setting) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.setting == setting)
    }

    /// Whether it says one of these; a switch that is off says nothing here.
    #[must_use]
    pub fn says(&self, settings: &[Setting]) -> bool {
        self.entries.iter().any(|entry| settings.contains(&entry.setting) && !entry.value.is_off())
    }

    /// Whether it says of the broker where it is, or a part of that.
    #[must_use]
    pub fn names_target(&self) -> bool {
        self.says(PLACE) || self.says(&[Port])
    }

    fn has_user_in_url(&self) -> bool {
        matches!(self.get(Broker), Some(Entry { value: Value::Url(url), .. }) if url.broker.user.is_some())
    }

    /// A URL with a user in it names the user, too.
    fn spread(&mut self) -> Result<(), CommandError> {
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
                    let what = "it names another user than the URL does";
                    let what = if self.rank == Rank::Flags {
                        "-u names another user than the URL does"
                    } else {
                        what
                    };
                    Err(origin.error(Username, what).hint("one of the two"))
                }
            };
        }
        let origin = origin.clone();
        self.put(Username, Value::Text(of_url), origin);
        Ok(())
    }

    /// Looks for what the layer itself contradicts. The definition of the command line has judged most of the flags.
    ///
    /// # Errors
    /// What cannot be said together.
    pub fn check(&self) -> Result<(), CommandError> {
        for (one, other) in EXCLUDE {
            let said = |setting: Setting| self.get(setting).filter(|entry| !entry.value.is_off());
            let (Some(first), Some(second)) = (said(*one), said(*other)) else { continue };
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
    /// Settles what the layers, the highest first, come to.
    ///
    /// # Errors
    /// A layer contradicts itself.
    pub fn of(mut layers: Vec<Layer>) -> Result<Self, CommandError> {
        // Somebody who types where the broker is does not think of what a file says.
        if layers.iter().any(|layer| layer.rank == Rank::Flags && layer.names_target()) {
            layers.retain(|layer| layer.rank != Rank::DefaultContext);
        }
        for layer in &mut layers {
            layer.spread()?;
            layer.check()?;
        }
        take_one_place(&mut layers);
        take_one_kind_of_credentials(&mut layers);
        for (dependants, head) in BELONGS {
            if let Some(has_it) = first_that_says(&layers, &[*head]) {
                let next = below(&layers, has_it).position(|layer| layer.says(&[*head]));
                leave_out(
                    &mut layers,
                    next.map(|next| has_it.saturating_add(next).saturating_add(1)),
                    dependants,
                );
            }
        }
        for group in TOGETHER {
            let behind = first_that_says(&layers, group).map(|at| at.saturating_add(1));
            leave_out(&mut layers, behind, group);
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

    /// The setting, with where it comes from; none: nobody has said anything.
    #[must_use]
    pub fn get(&self, setting: Setting) -> Option<&Entry> {
        self.entries.iter().map(|(_, entry)| entry).find(|entry| entry.setting == setting)
    }

    /// The layer that a setting comes from.
    #[must_use]
    pub fn rank(&self, setting: Setting) -> Option<Rank> {
        self.entries.iter().find(|(_, entry)| entry.setting == setting).map(|(rank, _)| *rank)
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn is_on(&self, setting: Setting) -> bool {
        self.get(setting).is_some_and(|entry| entry.value == Value::Switch(true))
    }

    /// A text.
    #[must_use]
    pub fn text(&self, setting: Setting) -> Option<&str> {
        match self.get(setting) {
            Some(Entry { value: Value::Text(text), .. }) => Some(text),
            _ => None,
        }
    }

    /// A path.
    #[must_use]
    pub fn path(&self, setting: Setting) -> Option<PathBuf> {
        match self.get(setting) {
            Some(Entry { value: Value::Path(path), .. }) => Some(path.clone()),
            _ => None,
        }
    }

    /// A number.
    #[must_use]
    pub fn number(&self, setting: Setting) -> Option<u32> {
        match self.get(setting) {
            Some(Entry { value: Value::Number(number), .. }) => Some(*number),
            _ => None,
        }
    }

    /// A length of time.
    #[must_use]
    pub fn wait(&self, setting: Setting) -> Option<Duration> {
        match self.get(setting) {
            Some(Entry { value: Value::Wait(wait), .. }) => Some(*wait),
            _ => None,
        }
    }

    /// The layer that says where the broker is.
    #[must_use]
    pub fn rank_of_broker(&self) -> Option<Rank> {
        PLACE.iter().find_map(|setting| self.rank(*setting))
    }
}

/// Leaves the broker's place to the highest layer that names it, and to the others what goes with it.
fn take_one_place(layers: &mut [Layer]) {
    let mut is_embedded_off = false;
    let place = layers.iter().position(|layer| {
        is_embedded_off |= layer.get(Embedded).is_some_and(|entry| entry.value.is_off());
        layer.says(if is_embedded_off { &[Broker, Hostname] } else { PLACE })
    });
    if let Some(place) = place {
        let is_of_other = |layer: &Layer| layer.says(PLACE) && layer.rank != Rank::TypedContext;
        let other = below(layers, place).position(is_of_other);
        let other = other.map(|other| place.saturating_add(other).saturating_add(1));
        leave_out(layers, other, OF_BROKER);
        leave_out(layers, Some(place.saturating_add(1)), OF_PLACE);
        leave_out(layers, Some(place.saturating_add(1)), PLACE);
    } else {
        leave_out(layers, Some(0), PLACE);
    }
    for layer in layers {
        layer.entries.retain(|entry| entry.setting != Embedded || !entry.value.is_off());
    }
}

fn take_one_kind_of_credentials(layers: &mut [Layer]) {
    let (token, user) = (first_that_says(layers, &[SatFile]), first_that_says(layers, USER));
    match (token, user) {
        (Some(token), Some(user)) if token < user => leave_out(layers, Some(user), USER),
        (Some(token), Some(_)) => leave_out(layers, Some(token), &[SatFile]),
        _ => {}
    }
}

fn first_that_says(layers: &[Layer], settings: &[Setting]) -> Option<usize> {
    layers.iter().position(|layer| layer.says(settings))
}

/// The layers below one.
fn below(layers: &[Layer], at: usize) -> impl Iterator<Item = &Layer> {
    layers.iter().skip(at.saturating_add(1))
}

/// Takes settings from a layer, if there is one, and from all below it: if a higher one may not say it, no lower one may.
fn leave_out(layers: &mut [Layer], from: Option<usize>, settings: &[Setting]) {
    for layer in layers.iter_mut().skip(from.unwrap_or(usize::MAX)) {
        layer.entries.retain(|entry| !settings.contains(&entry.setting));
    }
}

#[cfg(test)]
mod tests;
