//! Tests of the resolution of layers.

use std::ffi::OsStr;

use proptest::collection::vec;
use proptest::prelude::*;

use super::Rank::{DefaultContext, Flags, NamedContext, Sdk, TypedContext, Variables};
use super::*;
use crate::cli::config::origin::Origin;
use crate::cli::config::value::{PathBases, RawValue};

const RANKS: [Rank; 6] = [Flags, TypedContext, Variables, NamedContext, Sdk, DefaultContext];

fn put(layer: &mut Settings, rank: Rank, setting: Setting, text: &str) {
    let source = if rank == Flags { Source::Flag } else { Source::Variable(format!("{rank:?}")) };
    let raw = RawValue::Word(OsStr::new(text));
    layer.read(setting, raw, PathBases::default(), &Origin { rank, source }).unwrap();
}

/// `broker=mqtt://h notls=1` as a layer.
fn layer(rank: Rank, text: &str) -> Settings {
    let mut layer = Settings::default();
    for pair in text.split_whitespace() {
        let (key, text) = pair.split_once('=').unwrap();
        put(&mut layer, rank, Setting::of_key(key).unwrap(), text);
    }
    layer
}

/// Returns the resolved layers as `key=RANK` of each setting.
fn resolved(layers: &[(Rank, &str)]) -> Result<String, CommandError> {
    let layers = layers.iter().map(|(rank, text)| layer(*rank, text)).collect();
    let settings = Settings::resolve(layers)?;
    let mut left: Vec<_> =
        settings.iter().map(|(setting, _, origin)| format!("{}={:?}", setting.key(), origin.rank)).collect();
    left.sort();
    Ok(left.join(" "))
}

#[test]
fn the_higher_one_of_two_layers_wins() {
    for pair in RANKS.windows(2) {
        for (setting, text) in [("timeout", "1s"), ("hostname", "h"), ("output", "hex"), ("client_id", "me")]
        {
            let both = format!("{setting}={text}");
            let layers = [(pair[0], both.as_str()), (pair[1], both.as_str())];
            assert_eq!(resolved(&layers).unwrap(), format!("{setting}={:?}", pair[0]));
            let layers = [(pair[0], ""), (pair[1], both.as_str())];
            assert_eq!(
                resolved(&layers).unwrap(),
                format!("{setting}={:?}", pair[1]),
                "an absent setting hides none"
            );
        }
    }
}

#[track_caller]
fn assert_resolved(layers: &[(Rank, &str)], left: &str) {
    assert_eq!(resolved(layers).unwrap(), left, "{layers:?}");
}

#[test]
fn the_broker_comes_from_one_layer() {
    let context = "broker=mqtts://ctx:1";
    assert_resolved(&[(Flags, "hostname=h"), (TypedContext, context)], "hostname=Flags");
    assert_resolved(&[(Flags, "port=5"), (TypedContext, context)], "broker=TypedContext port=Flags");
    assert_resolved(&[(Flags, "notls=1"), (TypedContext, context)], "broker=TypedContext notls=Flags");
    assert_resolved(&[(Flags, "hostname=h"), (Variables, "port=5 notls=1")], "hostname=Flags");
    assert_resolved(&[(Flags, "broker=mqtt://h"), (Sdk, "hostname=s port=1 notls=1")], "broker=Flags");
    assert_resolved(&[(Variables, "port=5"), (Sdk, "hostname=s port=1")], "hostname=Sdk port=Variables");
    assert_resolved(&[(Variables, "embedded=no"), (NamedContext, "embedded=d")], "");
    assert_resolved(&[(Variables, "embedded=no"), (NamedContext, "hostname=h")], "hostname=NamedContext");
    assert_resolved(&[(Flags, "embedded=yes"), (Variables, context)], "embedded=Flags");
}

#[test]
fn a_default_context_has_no_effect_if_an_option_names_the_broker() {
    let context = "broker=mqtts://ctx username=ann timeout=1s";
    for typed in ["broker=mqtt://h", "hostname=h", "port=5", "embedded=yes"] {
        let key = typed.split('=').next().unwrap();
        assert_resolved(&[(Flags, typed), (DefaultContext, context)], &format!("{key}=Flags"));
    }
    assert_resolved(
        &[(Flags, "timeout=2s"), (DefaultContext, context)],
        "broker=DefaultContext timeout=Flags username=DefaultContext",
    );
    // A context that is named has an effect.
    assert_resolved(&[(Flags, "port=5"), (NamedContext, "timeout=1s")], "port=Flags timeout=NamedContext");
}

#[test]
fn credentials_and_certificates_stay_with_the_broker_that_their_layer_names() {
    let of_pod = "hostname=aio sat_file=t cafile=ca keep_alive=5s";
    assert_resolved(&[(Flags, "broker=mqtt://h"), (Sdk, of_pod)], "broker=Flags keep_alive=Sdk");
    assert_resolved(
        &[(Flags, "broker=mqtt://h"), (Variables, "username=u password_file=p")],
        "broker=Flags password_file=Variables username=Variables",
    );
    assert_resolved(
        &[(TypedContext, "broker=mqtts://a"), (Variables, "broker=mqtts://b username=u")],
        "broker=TypedContext",
    );
    // A context named beside the broker is meant for it.
    assert_resolved(
        &[(Flags, "hostname=localhost"), (TypedContext, "broker=mqtts://aio sat_file=t")],
        "hostname=Flags sat_file=TypedContext",
    );
    // A setting removed from one layer is removed from all below it.
    assert_resolved(
        &[(Flags, "hostname=h"), (Variables, "hostname=v username=u"), (NamedContext, "username=w")],
        "hostname=Flags",
    );
}

#[test]
fn credentials_of_one_kind_replace_those_of_the_other() {
    let user = "username=u password_file=p";
    assert_resolved(&[(Flags, "sat_file=t"), (TypedContext, user)], "sat_file=Flags");
    assert_resolved(&[(Flags, "username=u"), (TypedContext, "sat_file=t")], "username=Flags");
    assert_resolved(
        &[(Variables, "broker=mqtt://u@h"), (NamedContext, "sat_file=t")],
        "broker=Variables username=Variables",
    );
    assert_resolved(
        &[(Variables, "ask_password=1"), (NamedContext, user)],
        "ask_password=Variables username=NamedContext",
    );
    assert_resolved(&[(Flags, "username=w"), (TypedContext, user)], "username=Flags");
    assert_resolved(
        &[(Flags, "username=w"), (Variables, "password_file=p")],
        "password_file=Variables username=Flags",
    );
    assert_resolved(
        &[(Flags, "password_file=q"), (TypedContext, user)],
        "password_file=Flags username=TypedContext",
    );
}

#[test]
fn a_certificate_and_its_key_come_from_one_layer() {
    let identity = "certfile=c keyfile=k keypasswordfile=p";
    assert_resolved(
        &[(Flags, "certfile=d keyfile=l"), (TypedContext, identity)],
        "certfile=Flags keyfile=Flags",
    );
    assert_resolved(
        &[(Flags, "certfile=d"), (TypedContext, identity)],
        "certfile=Flags keypasswordfile=TypedContext",
    );
    assert_resolved(
        &[(Flags, "keypasswordfile=q"), (TypedContext, identity)],
        "certfile=TypedContext keyfile=TypedContext keypasswordfile=Flags",
    );
}

#[test]
fn json_and_a_format_replace_each_other() {
    assert_resolved(&[(Flags, "output=text"), (Variables, "json=1")], "output=Flags");
    assert_resolved(&[(Flags, "json=1"), (Variables, "output=text")], "json=Flags");
    assert_resolved(
        &[(Variables, "json=0"), (NamedContext, "output=hex")],
        "json=Variables output=NamedContext",
    );
}

#[test]
fn a_layer_that_contradicts_itself_is_rejected() {
    for text in [
        "broker=mqtt://h hostname=h",
        "broker=mqtt://h port=5",
        "hostname=h embedded=yes",
        "sat_file=t username=u",
        "broker=mqtt://u@h sat_file=t",
        "broker=mqtt://u@h username=w",
        "output=hex json=1",
    ] {
        let error = resolved(&[(Variables, text)]).unwrap_err();
        assert_eq!(error.kind, crate::commands::Kind::Configuration, "{text}");
        assert!(error.message.starts_with("Variables: "), "{error:?}");
    }
    assert_resolved(&[(Variables, "hostname=h embedded=no")], "hostname=Variables");
    assert_resolved(&[(Variables, "broker=mqtt://u@h username=u")], "broker=Variables username=Variables");
}

/// Returns a valid value of each setting.
fn sample(setting: Setting) -> &'static str {
    match setting {
        Broker => "mqtts://h:1",
        Port | Setting::Retries => "7",
        Setting::Timeout | Setting::ConnectTimeout | Setting::KeepAlive => "3s",
        Output => "hex",
        Setting::Color => "always",
        Setting::PromptColor => "red",
        _ => "yes",
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_higher_layer_always_wins(chosen in vec(vec(0..Setting::all().count(), 0..6), 6)) {
        let all: Vec<Setting> = Setting::all().collect();
        let layers: Vec<Settings> = RANKS.iter().zip(&chosen).map(|(rank, chosen)| {
            let mut layer = Settings::default();
            for setting in chosen.iter().map(|at| all[*at]) {
                put(&mut layer, *rank, setting, sample(setting));
            }
            layer
        }).collect();
        let Ok(settings) = Settings::resolve(layers.clone()) else { return Ok(()) };
        let of_rank = |rank: Rank| layers.iter().find(|layer| layer.rank() == Some(rank));
        for (setting, _, origin) in settings.iter() {
            for layer in layers.iter().filter(|layer| layer.rank().is_some_and(|rank| rank < origin.rank)) {
                prop_assert!(layer.get(setting).is_none(), "{setting:?} of {:?} over {:?}", layer.rank(), origin.rank);
            }
        }
        // No option on the command line is lost.
        for (setting, value, _) in layers[0].iter() {
            let left = settings.get(setting).filter(|(_, origin)| origin.rank == Flags);
            prop_assert!(left.is_some_and(|(left, _)| left == value), "{setting:?}");
        }
        // Credentials of one kind, and never those of another broker.
        let is_set = |setting: Setting| settings.get(setting).is_some();
        prop_assert!(!(is_set(SatFile) && USER.iter().any(|setting| is_set(*setting))));
        if let Some(place) = settings.rank_of_broker() {
            for setting in BOUND_TO_BROKER {
                let Some((_, Origin { rank: from, .. })) = settings.get(*setting) else { continue };
                let has_broker = of_rank(*from).is_some_and(|layer| layer.has_any(&[Broker, Hostname, Embedded]));
                prop_assert!(*from <= place || *from == TypedContext || !has_broker, "{setting:?}");
            }
        }
    }
}
