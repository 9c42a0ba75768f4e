//! Rules: parsed from the file, and evaluated for one client.

use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine};

use super::error::RuleError;
use super::template::{OPENING, Subject, Template, Unfilled, Usage};
use super::topic_set::TopicSet;
use super::yaml::{self, Field, Node, Value};
use crate::broker::Principal;
use crate::mqtt::filter;
use crate::net::certificate::Attribute;
use crate::protocol::key::KEY_BYTES_MAX;
use crate::store::authorization::{KeyPermissions, KeySet};

/// What the rules allow one client. Everything else is denied.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub(super) may_connect: bool,
    pub(super) publish: TopicSet,
    pub(super) subscribe: TopicSet,
    pub(super) permissions: Arc<KeyPermissions>,
    /// The first template that does not apply because it would reach beyond the client.
    pub(super) skipped: Option<SkippedTemplate>,
}

/// A template, and the placeholder whose value is unsafe in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SkippedTemplate {
    pub(super) template: String,
    pub(super) placeholder: String,
}

/// The rules of a file.
#[derive(Debug)]
pub(super) struct Policy {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    principals: Principals,
    broker: Vec<BrokerResource>,
    store: Vec<StoreResource>,
}

/// The clients that a rule is for: those that match any entry.
#[derive(Debug, Default)]
struct Principals {
    client_ids: Vec<String>,
    usernames: Vec<String>,
    /// An entry matches a certificate that has all its attributes.
    attributes: Vec<Vec<Attribute>>,
}

#[derive(Debug)]
struct BrokerResource {
    method: BrokerMethod,
    topics: Vec<Template>,
    /// Empty: for any client id.
    client_ids: Vec<Template>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BrokerMethod {
    Connect,
    Publish,
    Subscribe,
}

#[derive(Debug)]
struct StoreResource {
    is_read: bool,
    is_write: bool,
    keys: Keys,
}

#[derive(Debug)]
enum Keys {
    Patterns(Vec<Template>),
    Names(Vec<Template>),
    Bytes(Vec<Vec<u8>>),
}

/// Collects the strings of templates for one client, and the first template that is unsafe.
struct Filler<'a> {
    subject: Subject<'a>,
    skipped: Option<SkippedTemplate>,
}

impl Policy {
    /// Parses rules: a list `rules`, optionally inside `authorizationPolicies`, optionally inside `spec`, as in a
    /// BrokerAuthorization resource of Azure IoT Operations.
    pub(super) fn parse(text: &str) -> Result<Self, RuleError> {
        let empty = RuleError::new(0, "the file is empty: rules is missing");
        let root = yaml::parse(text)?.ok_or(empty)?;
        let root = Fields::of(&root, "the file")?;
        root.allow(&["apiVersion", "kind", "metadata", "spec", "status", "authorizationPolicies", "rules"])?;
        let spec = match root.get("spec") {
            Some(spec) => Fields::of(spec, "spec")?,
            None => root,
        };
        let policies = match spec.get("authorizationPolicies") {
            Some(policies) => {
                let policies = Fields::of(policies, "authorizationPolicies")?;
                policies.allow(&["cache", "rules"])?;
                policies
            }
            None => spec,
        };
        let rules = list(policies.need("rules")?, "rules")?;
        Ok(Self { rules: rules.iter().map(Rule::parse).collect::<Result<_, _>>()? })
    }

    /// Returns the number of rules.
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether a rule is for users.
    pub(super) fn names_users(&self) -> bool {
        self.rules.iter().any(|rule| !rule.principals.usernames.is_empty())
    }

    /// Evaluates the rules for one client.
    pub(super) fn access(&self, client_id: &str, principal: &Principal) -> Access {
        let subject = Subject { client_id, principal };
        let mut filler = Filler { subject, skipped: None };
        let (mut access, mut permissions) = (Access::default(), KeyPermissions::default());
        for rule in self.rules.iter().filter(|rule| rule.principals.matches(subject)) {
            for resource in &rule.broker {
                if !resource.is_for(client_id, &mut filler) {
                    continue;
                }
                let topics =
                    resource.topics.iter().filter_map(|topic| filler.fill(topic, Usage::TopicFilter));
                match resource.method {
                    BrokerMethod::Connect => access.may_connect = true,
                    BrokerMethod::Publish => topics.for_each(|topic| access.publish.add(topic)),
                    BrokerMethod::Subscribe => topics.for_each(|topic| access.subscribe.add(topic)),
                }
            }
            for resource in &rule.store {
                let sets =
                    [(resource.is_read, &mut permissions.read), (resource.is_write, &mut permissions.write)];
                for (_, set) in sets.into_iter().filter(|(is_granted, _)| *is_granted) {
                    resource.keys.add_to(set, &mut filler);
                }
            }
        }
        access.permissions = Arc::new(permissions);
        access.skipped = filler.skipped;
        access
    }
}

impl Filler<'_> {
    fn fill(&mut self, template: &Template, usage: Usage) -> Option<String> {
        match template.fill(self.subject, usage) {
            Ok(text) => Some(text),
            Err(Unfilled::Missing) => None,
            Err(Unfilled::Unsafe(placeholder)) => {
                self.skipped.get_or_insert_with(|| SkippedTemplate {
                    template: template.to_string(),
                    placeholder: placeholder.to_string(),
                });
                None
            }
        }
    }
}

impl Rule {
    fn parse(node: &Node) -> Result<Self, RuleError> {
        let fields = Fields::of(node, "a rule")?;
        fields.allow(&["principals", "brokerResources", "stateStoreResources"])?;
        let resources = |name| fields.get(name).map_or(Ok([].as_slice()), |node| list(node, name));
        let (broker, store) = (resources("brokerResources")?, resources("stateStoreResources")?);
        Ok(Self {
            principals: Principals::parse(fields.need("principals")?)?,
            broker: broker.iter().map(BrokerResource::parse).collect::<Result<_, _>>()?,
            store: store.iter().map(StoreResource::parse).collect::<Result<_, _>>()?,
        })
    }
}

impl Principals {
    fn parse(node: &Node) -> Result<Self, RuleError> {
        const KNOWN: [&str; 3] = ["clientIds", "usernames", "attributes"];
        let fields = Fields::of(node, "principals")?;
        fields.allow(&KNOWN)?;
        let attributes =
            fields.get("attributes").map_or(Ok([].as_slice()), |node| list(node, "attributes"))?;
        let attributes = attributes.iter().map(|node| {
            let Fields { fields, line, .. } = Fields::of(node, "an entry of attributes")?;
            let attribute =
                |field: &Field| Ok((field.name.clone(), text(&field.node, &field.name)?.to_owned()));
            match fields {
                [] => Err(error_at(line, "empty entry of attributes")),
                fields => fields.iter().map(attribute).collect(),
            }
        });
        let texts = |name| Ok(fields.texts(name)?.into_iter().map(|(_, text)| text.to_owned()).collect());
        let (client_ids, usernames): (Vec<_>, Vec<_>) = (texts("clientIds")?, texts("usernames")?);
        let attributes = attributes.collect::<Result<Vec<_>, _>>()?;
        if client_ids.is_empty() && usernames.is_empty() && attributes.is_empty() {
            // A reader could take an empty list for all clients.
            let known = KNOWN.join(", ");
            return Err(error_at(node.line, &format!("principals is empty: expected one of {known}")));
        }
        Ok(Self { client_ids, usernames, attributes })
    }

    fn matches(&self, Subject { client_id, principal }: Subject<'_>) -> bool {
        let has_all = |attributes: &Vec<Attribute>| {
            attributes
                .iter()
                .all(|wanted| principal.certificate_attributes().any(|attribute| attribute == wanted))
        };
        self.client_ids.iter().any(|id| id == client_id)
            || self.usernames.iter().any(|name| principal.user.as_deref() == Some(name))
            || self.attributes.iter().any(has_all)
    }
}

impl BrokerResource {
    fn parse(node: &Node) -> Result<Self, RuleError> {
        let fields = Fields::of(node, "an entry of brokerResources")?;
        fields.allow(&["method", "topics", "clientIds"])?;
        let method = fields.one_of(
            "method",
            &[
                ("Connect", BrokerMethod::Connect),
                ("Publish", BrokerMethod::Publish),
                ("Subscribe", BrokerMethod::Subscribe),
            ],
        )?;
        let topics = match method {
            BrokerMethod::Connect => {
                if let Some(topics) = fields.get("topics") {
                    return Err(error_at(topics.line, "topics is allowed for Publish and Subscribe only"));
                }
                Vec::new()
            }
            BrokerMethod::Publish | BrokerMethod::Subscribe => {
                fields.need("topics")?;
                fields.templates("topics", filter::is_valid, "is not a valid topic filter")?
            }
        };
        Ok(Self { method, topics, client_ids: fields.templates("clientIds", |_| true, "")? })
    }

    fn is_for(&self, client_id: &str, filler: &mut Filler<'_>) -> bool {
        let is_equal =
            |template: &Template| filler.fill(template, Usage::ClientId).is_some_and(|id| id == client_id);
        self.client_ids.is_empty() || self.client_ids.iter().any(is_equal)
    }
}

impl StoreResource {
    fn parse(node: &Node) -> Result<Self, RuleError> {
        let fields = Fields::of(node, "an entry of stateStoreResources")?;
        fields.allow(&["method", "keyType", "keys"])?;
        let (is_read, is_write) = fields.one_of(
            "method",
            &[("Read", (true, false)), ("Write", (false, true)), ("ReadWrite", (true, true))],
        )?;
        let kind = fields.one_of("keyType", &[("Pattern", 0), ("String", 1), ("Binary", 2)])?;
        fields.need("keys")?;
        let keys = match kind {
            0 => {
                let is_pattern = |text: &str| KeySet::default().add_pattern(text).is_ok();
                let what = "is not a valid pattern: unclosed [, or ** that is not a whole path segment";
                let patterns = fields.templates("keys", is_pattern, what)?;
                for ((line, text), pattern) in fields.texts("keys")?.into_iter().zip(&patterns) {
                    // Inside brackets, characters of the inserted value cannot be escaped.
                    if !pattern.prefixes().iter().all(|prefix| is_pattern(prefix)) {
                        return Err(error_at(line, &format!("{text} has {OPENING}…}} inside brackets")));
                    }
                }
                Keys::Patterns(patterns)
            }
            1 => Keys::Names(fields.templates("keys", |text| !text.is_empty(), "is not a valid key")?),
            _ => {
                let decode = |(line, text): (usize, &str)| match STANDARD.decode(text) {
                    Ok(key) if key.is_empty() => Err(error_at(line, "empty key")),
                    Ok(key) if key.len() > KEY_BYTES_MAX => Err(error_at(line, "key is too long")),
                    Ok(key) => Ok(key),
                    Err(error) => {
                        let cause = match error {
                            DecodeError::InvalidByte(at, _) => {
                                format!("invalid character {}", at.saturating_add(1))
                            }
                            _ => "missing characters or padding at the end".to_owned(),
                        };
                        Err(error_at(line, &format!("{text} is not base64: {cause}")))
                    }
                };
                Keys::Bytes(fields.texts("keys")?.into_iter().map(decode).collect::<Result<_, _>>()?)
            }
        };
        Ok(Self { is_read, is_write, keys })
    }
}

impl Keys {
    fn add_to(&self, set: &mut KeySet, filler: &mut Filler<'_>) {
        match self {
            Self::Bytes(keys) => keys.iter().for_each(|key| set.add(key)),
            Self::Names(names) => {
                let names = names.iter().filter_map(|name| filler.fill(name, Usage::Key));
                names.for_each(|name| set.add(name.as_bytes()));
            }
            Self::Patterns(patterns) => {
                for pattern in patterns.iter().filter_map(|pattern| filler.fill(pattern, Usage::KeyPattern)) {
                    // The template was validated with a sample, and inserted values are escaped: it cannot fail.
                    let _ = set.add_pattern(&pattern);
                }
            }
        }
    }
}

/// The entries of a map in the file.
#[derive(Clone, Copy)]
struct Fields<'a> {
    fields: &'a [Field],
    line: usize,
    name: &'a str,
}

impl<'a> Fields<'a> {
    fn of(node: &'a Node, name: &'a str) -> Result<Self, RuleError> {
        match &node.value {
            Value::Map(fields) => Ok(Self { fields, line: node.line, name }),
            _ => Err(error_at(node.line, &format!("{name} is {}, expected a map", node.kind()))),
        }
    }

    /// Checks that there are no other names: a misspelled name must not be ignored.
    fn allow(&self, names: &[&str]) -> Result<(), RuleError> {
        match self.fields.iter().find(|field| !names.contains(&field.name.as_str())) {
            Some(Field { name, line, .. }) => {
                let known = names.join(", ");
                Err(error_at(*line, &format!("unknown name {name} in {}: expected {known}", self.name)))
            }
            None => Ok(()),
        }
    }

    fn get(&self, name: &str) -> Option<&'a Node> {
        self.fields.iter().find(|field| field.name == name).map(|field| &field.node)
    }

    fn need(&self, name: &str) -> Result<&'a Node, RuleError> {
        self.get(name).ok_or_else(|| error_at(self.line, &format!("{name} is missing in {}", self.name)))
    }

    fn one_of<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T, RuleError> {
        let node = self.need(name)?;
        let given = text(node, name)?;
        choices.iter().find(|(choice, _)| *choice == given).map(|(_, meaning)| *meaning).ok_or_else(|| {
            let known: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
            error_at(node.line, &format!("unknown {name} {given}: expected {}", known.join(", ")))
        })
    }

    /// Returns the strings of an optional list, with their lines.
    fn texts(&self, name: &'a str) -> Result<Vec<(usize, &'a str)>, RuleError> {
        let nodes = self.get(name).map_or(Ok([].as_slice()), |node| list(node, name))?;
        nodes.iter().map(|node| Ok((node.line, text(node, name)?))).collect()
    }

    /// Returns the templates of an optional list, validated with sample values.
    fn templates(
        &self,
        name: &'a str,
        is_valid: impl Fn(&str) -> bool,
        what: &str,
    ) -> Result<Vec<Template>, RuleError> {
        let template = |(line, text)| {
            let template = Template::parse(line, text)?;
            match template.sample() {
                filled if is_valid(&filled) => Ok(template),
                _ if text.is_empty() => Err(error_at(line, &format!("empty string {what}"))),
                _ => Err(error_at(line, &format!("{text} {what}"))),
            }
        };
        self.texts(name)?.into_iter().map(template).collect()
    }
}

fn list<'a>(node: &'a Node, name: &str) -> Result<&'a [Node], RuleError> {
    match &node.value {
        Value::List(list) => Ok(list),
        _ => Err(error_at(node.line, &format!("{name} is {}, expected a list", node.kind()))),
    }
}

fn text<'a>(node: &'a Node, name: &str) -> Result<&'a str, RuleError> {
    match &node.value {
        Value::Text(text) => Ok(text),
        _ => Err(error_at(node.line, &format!("{name} contains {}, expected a string", node.kind()))),
    }
}

fn error_at(line: usize, what: &str) -> RuleError {
    RuleError::new(line, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
apiVersion: mqttbroker.iotoperations.azure.com/v1
kind: BrokerAuthorization
metadata: {name: lab}
spec:
  authorizationPolicies:
    cache: Enabled
    rules:
      - principals:
          clientIds: [press-7, "evil*"]
          usernames: [ann]
          attributes:
            - O: Werk
              OU: Halle 3
        brokerResources:
          - method: Connect
          - method: Publish
            topics: ["telemetry/{principal.clientId}", "user/{principal.username}/#"]
          - method: Subscribe
            topics: ["commands/{principal.attributes.OU}/#"]
        stateStoreResources:
          - method: Read
            keyType: Pattern
            keys: ["line[0-9]*", "clients:{principal.clientId}:*"]
          - method: ReadWrite
            keyType: Binary
            keys: ["/wA="]
          - method: Write
            keyType: String
            keys: ["own/*/{principal.username}"]
"#;

    fn principal(user: Option<&str>, attributes: &[(&str, &str)]) -> Principal {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let (alternatives, attributes) =
            attributes.iter().map(own).partition::<Vec<_>, _>(|own| own.0 == "URI");
        let (issuer, attributes) =
            attributes.into_iter().partition::<Vec<_>, _>(|own| own.0.starts_with("issuer."));
        let (attributes, alternatives) = (attributes.into(), alternatives.into());
        Principal { user: user.map(Into::into), attributes, alternatives, issuer: issuer.into() }
    }

    #[test]
    fn a_rule_applies_to_clients_that_match_any_principal() {
        let policy = Policy::parse(RULES).unwrap();
        let may_connect = |id, principal: &Principal| policy.access(id, principal).may_connect;
        assert!(may_connect("press-7", &principal(None, &[])));
        assert!(may_connect("x", &principal(Some("ann"), &[])));
        assert!(may_connect("x", &principal(None, &[("OU", "Halle 3"), ("O", "Werk"), ("CN", "c")])));
        assert!(!may_connect("x", &principal(Some("bob"), &[("O", "Werk")])));
        assert!(!may_connect("press-77", &principal(None, &[])));
    }

    #[test]
    fn alternative_names_of_a_certificate_are_attributes_too() {
        let rules = RULES.replace("OU: Halle 3", "URI: \"spiffe://werk/press\"");
        let rules = rules.replace("attributes.OU", "attributes.O");
        let policy = Policy::parse(&rules).unwrap();
        let press = principal(None, &[("O", "Werk"), ("URI", "spiffe://werk/press")]);
        let access = policy.access("x", &press);
        assert!(access.may_connect && access.subscribe.covers("commands/Werk/#"));
        assert!(!policy.access("x", &principal(None, &[("O", "Werk"), ("URI", "spiffe://o")])).may_connect);
    }

    #[test]
    fn a_rule_can_require_the_issuer_of_a_certificate() {
        let policy = Policy::parse(&RULES.replace("OU: Halle 3", "issuer.CN: CA 1")).unwrap();
        let may_connect = |issuer| {
            policy.access("x", &principal(None, &[("O", "Werk"), ("issuer.CN", issuer)])).may_connect
        };
        assert!(may_connect("CA 1") && !may_connect("CA 2"));
    }

    /// Returns the access of the client `c` with the user `ann` by one rule for it, with this entry of brokerResources or
    /// stateStoreResources.
    fn access_by(resources: &str, entry: &str) -> Access {
        let rules = format!("rules:\n- principals: {{clientIds: [c]}}\n  {resources}:\n  - {entry}\n");
        Policy::parse(&rules).unwrap().access("c", &principal(Some("ann"), &[]))
    }

    #[test]
    fn a_broker_resource_applies_to_its_client_ids_only() {
        for (client_ids, is_for) in [
            ("[c]", true),
            ("[a, c]", true),
            ("[]", true),
            ("[a]", false),
            ("['{principal.clientId}']", true),
            ("['{principal.username}']", false),
            ("['{principal.attributes.CN}']", false),
        ] {
            let access =
                |entry: &str| access_by("brokerResources", &format!("{{{entry}, clientIds: {client_ids}}}"));
            assert_eq!(access("method: Connect").may_connect, is_for, "{client_ids}");
            assert_eq!(access("method: Publish, topics: [t]").publish.contains("t"), is_for, "{client_ids}");
            assert_eq!(
                access("method: Subscribe, topics: [t]").subscribe.contains("t"),
                is_for,
                "{client_ids}"
            );
        }
    }

    #[test]
    fn each_method_of_the_broker_permits_only_itself() {
        for (entry, expected) in [
            ("{method: Connect}", [true, false, false]),
            ("{method: Publish, topics: [t]}", [false, true, false]),
            ("{method: Subscribe, topics: [t]}", [false, false, true]),
        ] {
            let access = access_by("brokerResources", entry);
            let found = [access.may_connect, access.publish.contains("t"), access.subscribe.covers("t")];
            assert_eq!(found, expected, "{entry}");
            assert!(!access.publish.contains("u") && !access.subscribe.covers("u"));
            assert!(!access.permissions.read.contains(b"t") && !access.permissions.write.contains(b"t"));
        }
    }

    #[test]
    fn each_method_and_type_of_keys_permits_only_itself() {
        for (method, expected) in
            [("Read", [true, false]), ("Write", [false, true]), ("ReadWrite", [true, true])]
        {
            // The third key is named by its bytes, which are those of `k*`.
            for (kind, key, names, others) in [
                ("Pattern", "k*", &["k*", "k1"][..], &["*", "l"][..]),
                ("String", "k*", &["k*"], &["k1", "l"]),
                ("Binary", "ayo=", &["k*"], &["k1", "ayo="]),
            ] {
                let entry = format!("{{method: {method}, keyType: {kind}, keys: ['{key}']}}");
                let Access { may_connect, permissions, .. } = access_by("stateStoreResources", &entry);
                let found = |name: &str| {
                    [permissions.read.contains(name.as_bytes()), permissions.write.contains(name.as_bytes())]
                };
                assert!(names.iter().all(|name| found(name) == expected), "{entry}");
                assert!(others.iter().all(|name| found(name) == [false, false]), "{entry}");
                assert!(!may_connect);
            }
        }
    }

    #[test]
    fn each_kind_of_principal_is_compared_with_its_own_property() {
        let ann = principal(Some("ann"), &[("CN", "ann")]);
        for (principals, is_match) in [
            ("clientIds: [c]", true),
            ("clientIds: [ann]", false),
            ("usernames: [ann]", true),
            ("usernames: [c]", false),
            ("attributes: [{CN: ann}]", true),
            ("attributes: [{CN: c}]", false),
            ("attributes: [{O: ann}]", false),
            ("attributes: [{CN: ann, O: x}]", false),
            ("attributes: [{O: x}, {CN: ann}]", true),
        ] {
            let rules =
                format!("rules:\n- principals: {{{principals}}}\n  brokerResources: [{{method: Connect}}]\n");
            let policy = Policy::parse(&rules).unwrap();
            assert_eq!(policy.access("c", &ann).may_connect, is_match, "{principals}");
            assert!(!policy.access("x", &Principal::default()).may_connect, "{principals}");
        }
    }

    #[test]
    fn a_template_is_not_filled_for_a_client_without_the_property() {
        for property in ["username", "attributes.CN"] {
            let of = |resources, entry: &str| {
                let entry = entry.replace("NAME", property);
                let rules =
                    format!("rules:\n- principals: {{clientIds: [c]}}\n  {resources}:\n  - {{{entry}}}\n");
                Policy::parse(&rules).unwrap().access("c", &Principal::default())
            };
            let keys = |kind| {
                let entry = format!("method: ReadWrite, keyType: {kind}, keys: ['own/{{principal.NAME}}']");
                of("stateStoreResources", &entry).permissions
            };
            assert!(!keys("String").read.contains(b"own/") && !keys("String").write.contains(b"own/"));
            assert!(!keys("Pattern").read.contains(b"own/") && !keys("Pattern").write.contains(b"own/"));
            let topics = |method| {
                of("brokerResources", &format!("method: {method}, topics: ['own/{{principal.NAME}}']"))
            };
            assert!(!topics("Publish").publish.contains("own/"));
            assert!(!topics("Subscribe").subscribe.contains("own/"));
            let connect = "method: Connect, clientIds: ['c{principal.NAME}']";
            assert!(!of("brokerResources", connect).may_connect);
            assert_eq!(of("brokerResources", connect).skipped, None, "nothing to report");
        }
    }

    #[test]
    fn the_first_unsafe_template_is_noted() {
        let rules = RULES.replace("\"evil*\"", "x/y");
        let policy = Policy::parse(&rules).unwrap();
        let of = |id| policy.access(id, &Principal::default()).skipped;
        assert_eq!(of("press-7"), None);
        let template = "telemetry/{principal.clientId}".to_owned();
        let placeholder = "{principal.clientId}".to_owned();
        assert_eq!(of("x/y"), Some(SkippedTemplate { template, placeholder }));
    }

    #[test]
    fn placeholders_are_replaced_and_a_rule_with_an_unknown_one_does_not_apply() {
        let policy = Policy::parse(RULES).unwrap();
        let access = policy.access("press-7", &principal(Some("ann"), &[("OU", "Halle 3")]));
        assert!(access.publish.contains("telemetry/press-7") && access.publish.contains("user/ann/a/b"));
        assert!(!access.publish.contains("telemetry/press-8") && !access.publish.contains("user/bob"));
        assert!(access.subscribe.covers("commands/Halle 3/+") && !access.subscribe.covers("commands/#"));
        let (read, write) = (&access.permissions.read, &access.permissions.write);
        assert!(
            read.contains(b"line7/temp") && read.contains(b"clients:press-7:x") && read.contains(b"\xFF\0")
        );
        assert!(!read.contains(b"clients:press-8:x") && !write.contains(b"line7/temp"));
        assert!(write.contains(b"own/*/ann") && write.contains(b"\xFF\0") && !write.contains(b"own/x/ann"));
        let access = policy.access("press-7", &principal(None, &[]));
        assert!(!access.publish.contains("user//x") && !access.subscribe.covers("commands/x"));
    }

    #[test]
    fn a_client_id_with_wildcards_never_widens_a_rule() {
        let rules = RULES.replace("\"evil*\"", "\"evil*\", \"#\", x/y");
        let policy = Policy::parse(&rules).unwrap();
        let read =
            |id: &str, key: &[u8]| policy.access(id, &principal(None, &[])).permissions.read.contains(key);
        assert!(read("evil*", b"clients:evil*:1") && !read("evil*", b"clients:evil-twin:1"));
        for id in ["#", "x/y"] {
            let access = policy.access(id, &principal(None, &[]));
            assert!(access.may_connect, "{id}");
            assert!(
                !access.publish.contains("telemetry/any") && !access.publish.contains("telemetry/x/y"),
                "{id}"
            );
        }
    }

    #[test]
    fn an_invalid_rule_is_an_error_with_its_line() {
        for (from, to, what) in [
            ("method: Read\n", "method: Look\n", "unknown method Look: expected Read, Write, ReadWrite"),
            ("keyType: Binary", "keyType: Bin", "unknown keyType Bin: expected Pattern, String, Binary"),
            ("line[0-9]*", "line[0-9", "line[0-9 is not a valid pattern: unclosed [, or ** that"),
            (
                "line[0-9]*",
                "[{principal.clientId}]",
                "[{principal.clientId}] has {principal.…} inside brackets",
            ),
            (
                "line[0-9]*",
                "a/{principal.username}[!{principal.clientId}b]",
                "a/{principal.username}[!{princ",
            ),
            ("/wA=", "/wA", "/wA is not base64: missing characters or padding at the end"),
            ("/wA=", "/w.A", "/w.A is not base64: invalid character 3"),
            ("\"own/*/{principal.username}\"", "\"\"", "empty string is not a valid key"),
            (
                "usernames:",
                "userNames:",
                "unknown name userNames in principals: expected clientIds, usernames, attr",
            ),
            ("principals:", "principles:", "unknown name principles in a rule: expected principals, "),
            (
                "telemetry/{principal.clientId}",
                "t/{principal.id}",
                "unknown placeholder {principal.id}: expected",
            ),
            ("telemetry/{principal.clientId}", "t#", "t# is not a valid topic filter"),
            ("clientIds: [press-7, \"evil*\"]", "clientIds: press-7", "clientIds is a string, expected"),
            ("- method: Connect", "- {method: Connect, topics: [a]}", "topics is allowed for Publish and "),
        ] {
            let rules = RULES.replace(from, to);
            let line = 1 + rules.lines().position(|line| line.contains(to.trim())).unwrap();
            let RuleError { line: found, what: message } = Policy::parse(&rules).unwrap_err();
            assert!(message.starts_with(what), "{message}");
            assert_eq!(found, line, "{message}");
        }
        for principals in ["{}", "{clientIds: []}", "{clientIds: [], usernames: [], attributes: []}"] {
            let rules = format!("rules:\n- brokerResources: []\n  principals: {principals}\n");
            let RuleError { line, what } = Policy::parse(&rules).unwrap_err();
            let message = "principals is empty: expected one of clientIds, usernames, attributes";
            assert_eq!((line, what.as_str()), (3, message), "{principals}");
        }
        assert_eq!(Policy::parse("").unwrap_err().line, 0);
        assert_eq!(Policy::parse("- a").unwrap_err().what, "the file is a list, expected a map");
        assert_eq!(Policy::parse("kind: x").unwrap_err().what, "rules is missing in the file");
        assert_eq!(Policy::parse("rules: []").unwrap().len(), 0);
    }
}
