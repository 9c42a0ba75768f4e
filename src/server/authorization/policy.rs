//! Rules, as they are written and as they come out for one client.

use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine};

use super::yaml::{self, Field, Node, Value};
use super::{Access, Mistake};
use crate::broker::Principal;
use crate::mqtt::filter;
use crate::net::certificate::Attribute;
use crate::protocol::key::KEY_BYTES_MAX;
use crate::store::authorization::{KeyPermissions, KeySet, escape};

/// What stands in place of what a client is begins with.
const OPENING: &str = "{principal.";

/// Rules, each of which allows something to somebody.
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

/// Whoever has one of these.
#[derive(Debug, Default)]
struct Principals {
    client_ids: Vec<String>,
    usernames: Vec<String>,
    /// All attributes of one of the entries.
    attributes: Vec<Vec<Attribute>>,
}

#[derive(Debug)]
struct BrokerResource {
    method: BrokerMethod,
    topics: Vec<Template>,
    /// Only with one of these client ids; none: with any.
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
    reads: bool,
    writes: bool,
    keys: Keys,
}

#[derive(Debug)]
enum Keys {
    Patterns(Vec<Template>),
    Names(Vec<Template>),
    Bytes(Vec<Vec<u8>>),
}

/// A text with places for what a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    ClientId,
    Username,
    Attribute(String),
}

/// Whose rules are looked for.
#[derive(Clone, Copy)]
struct Who<'a> {
    client_id: &'a str,
    principal: &'a Principal,
}

impl Policy {
    /// Reads rules: a list under `rules`, which may be within `authorizationPolicies`, and that within `spec`, as in the
    /// product's own resource.
    pub(super) fn parse(text: &str) -> Result<Self, Mistake> {
        let empty = Mistake { line: 0, what: "there is nothing in it: rules are missing".to_owned() };
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

    /// How many rules there are.
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// What they come to for one client.
    pub(super) fn access(&self, client_id: &str, principal: &Principal) -> Access {
        let who = Who { client_id, principal };
        let (mut access, mut permissions) = (Access::default(), KeyPermissions::default());
        for rule in self.rules.iter().filter(|rule| rule.principals.has(who)) {
            for resource in rule.broker.iter().filter(|resource| resource.is_for(client_id, who)) {
                let topics = resource.topics.iter().filter_map(|topic| topic.as_topic(who));
                match resource.method {
                    BrokerMethod::Connect => access.may_connect = true,
                    BrokerMethod::Publish => topics.for_each(|topic| access.publish.add(topic)),
                    BrokerMethod::Subscribe => topics.for_each(|topic| access.subscribe.add(topic)),
                }
            }
            for resource in &rule.store {
                let sets =
                    [(resource.reads, &mut permissions.read), (resource.writes, &mut permissions.write)];
                for (_, set) in sets.into_iter().filter(|(is_meant, _)| *is_meant) {
                    resource.keys.add_to(set, who);
                }
            }
        }
        access.permissions = Arc::new(permissions);
        access
    }
}

impl Rule {
    fn parse(node: &Node) -> Result<Self, Mistake> {
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
    fn parse(node: &Node) -> Result<Self, Mistake> {
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
                [] => Err(mistake(line, "an entry of attributes without an attribute")),
                fields => fields.iter().map(attribute).collect(),
            }
        });
        let texts = |name| Ok(fields.texts(name)?.into_iter().map(|(_, text)| text.to_owned()).collect());
        let (client_ids, usernames): (Vec<_>, Vec<_>) = (texts("clientIds")?, texts("usernames")?);
        let attributes = attributes.collect::<Result<Vec<_>, _>>()?;
        if client_ids.is_empty() && usernames.is_empty() && attributes.is_empty() {
            // One could take it for everybody.
            let known = KNOWN.join(", ");
            return Err(mistake(node.line, &format!("principals names nobody: there are {known}")));
        }
        Ok(Self { client_ids, usernames, attributes })
    }

    fn has(&self, Who { client_id, principal }: Who<'_>) -> bool {
        let has = |attributes: &Vec<Attribute>| {
            attributes
                .iter()
                .all(|wanted| principal.certificate_attributes().any(|attribute| attribute == wanted))
        };
        self.client_ids.iter().any(|id| id == client_id)
            || self.usernames.iter().any(|name| principal.user.as_deref() == Some(name))
            || self.attributes.iter().any(has)
    }
}

impl BrokerResource {
    fn parse(node: &Node) -> Result<Self, Mistake> {
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
                    return Err(mistake(topics.line, "topics are for Publish and Subscribe"));
                }
                Vec::new()
            }
            BrokerMethod::Publish | BrokerMethod::Subscribe => {
                fields.need("topics")?;
                fields.templates("topics", filter::is_valid, "is no topic and no filter")?
            }
        };
        Ok(Self { method, topics, client_ids: fields.templates("clientIds", |_| true, "")? })
    }

    fn is_for(&self, client_id: &str, who: Who<'_>) -> bool {
        let is_it = |template: &Template| template.fill(who, str::to_owned).is_some_and(|id| id == client_id);
        self.client_ids.is_empty() || self.client_ids.iter().any(is_it)
    }
}

impl StoreResource {
    fn parse(node: &Node) -> Result<Self, Mistake> {
        let fields = Fields::of(node, "an entry of stateStoreResources")?;
        fields.allow(&["method", "keyType", "keys"])?;
        let (reads, writes) = fields.one_of(
            "method",
            &[("Read", (true, false)), ("Write", (false, true)), ("ReadWrite", (true, true))],
        )?;
        let kind = fields.one_of("keyType", &[("Pattern", 0), ("String", 1), ("Binary", 2)])?;
        fields.need("keys")?;
        let keys = match kind {
            0 => {
                let is_pattern = |text: &str| KeySet::default().add_pattern(text).is_ok();
                let what = "is no pattern: a [ that is not closed, or a ** that is no whole part of a path";
                let patterns = fields.templates("keys", is_pattern, what)?;
                for ((line, text), pattern) in fields.texts("keys")?.into_iter().zip(&patterns) {
                    // Between brackets, names have characters that nothing escapes.
                    if !pattern.beginnings().iter().all(|beginning| is_pattern(beginning)) {
                        return Err(mistake(line, &format!("{text} has a {OPENING}…}} within [ and ]")));
                    }
                }
                Keys::Patterns(patterns)
            }
            1 => Keys::Names(fields.templates("keys", |text| !text.is_empty(), "is no key")?),
            _ => {
                let decode = |(line, text): (usize, &str)| match STANDARD.decode(text) {
                    Ok(key) if key.is_empty() => Err(mistake(line, "an empty key")),
                    Ok(key) if key.len() > KEY_BYTES_MAX => Err(mistake(line, "a key that is too long")),
                    Ok(key) => Ok(key),
                    Err(error) => {
                        let why = match error {
                            DecodeError::InvalidByte(at, _) => {
                                format!("character {} does not belong there", at.saturating_add(1))
                            }
                            _ => "its end is missing, or the = at its end".to_owned(),
                        };
                        Err(mistake(line, &format!("{text} is no base64: {why}")))
                    }
                };
                Keys::Bytes(fields.texts("keys")?.into_iter().map(decode).collect::<Result<_, _>>()?)
            }
        };
        Ok(Self { reads, writes, keys })
    }
}

impl Keys {
    fn add_to(&self, set: &mut KeySet, who: Who<'_>) {
        match self {
            Self::Bytes(keys) => keys.iter().for_each(|key| set.add(key)),
            Self::Names(names) => {
                let names = names.iter().filter_map(|name| name.fill(who, str::to_owned));
                names.for_each(|name| set.add(name.as_bytes()));
            }
            Self::Patterns(patterns) => {
                for pattern in patterns.iter().filter_map(|pattern| pattern.fill(who, escape)) {
                    // It was one with any name in its place, and an escaped name is none of the pattern's characters.
                    let _ = set.add_pattern(&pattern);
                }
            }
        }
    }
}

impl Template {
    fn parse(line: usize, text: &str) -> Result<Self, Mistake> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once(OPENING) {
            let (name, after) = after
                .split_once('}')
                .ok_or_else(|| mistake(line, &format!("{text} has a {OPENING} without its }}")))?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match (name, name.strip_prefix("attributes.")) {
                ("clientId", _) => Piece::ClientId,
                ("username", _) => Piece::Username,
                (_, Some(name)) if !name.is_empty() => Piece::Attribute(name.to_owned()),
                _ => {
                    let known = "{principal.clientId}, {principal.username} and {principal.attributes.NAME}";
                    return Err(mistake(line, &format!("{OPENING}{name}}} is not known: there are {known}")));
                }
            });
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// What stands before each place for what a client is, with any name in those before it.
    fn beginnings(&self) -> Vec<String> {
        let mut text = String::new();
        let mut beginnings = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                _ => {
                    beginnings.push(text.clone());
                    text.push('x');
                }
            }
        }
        beginnings
    }

    /// The text for one client; none if it has not all that the text asks for.
    fn fill(&self, Who { client_id, principal }: Who<'_>, put: impl Fn(&str) -> String) -> Option<String> {
        let attribute = |name: &str| {
            principal
                .certificate_attributes()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.as_str())
        };
        let pieces = self.0.iter().map(|piece| {
            Some(match piece {
                Piece::Text(text) => text.clone(),
                Piece::ClientId => put(client_id),
                Piece::Username => put(principal.user.as_deref()?),
                Piece::Attribute(name) => put(attribute(name)?),
            })
        });
        pieces.collect()
    }

    /// A topic or filter for one client. A name with a character that means something in topics would make it mean
    /// something else, so that client gets none.
    fn as_topic(&self, who: Who<'_>) -> Option<String> {
        let is_odd = |text: &str| text.is_empty() || text.contains(['+', '#', '/']);
        let mark = |text: &str| if is_odd(text) { "\0".to_owned() } else { text.to_owned() };
        self.fill(who, mark).filter(|topic| !topic.contains('\0'))
    }
}

/// A map of the file.
#[derive(Clone, Copy)]
struct Fields<'a> {
    fields: &'a [Field],
    line: usize,
    name: &'a str,
}

impl<'a> Fields<'a> {
    fn of(node: &'a Node, name: &'a str) -> Result<Self, Mistake> {
        match &node.value {
            Value::Map(fields) => Ok(Self { fields, line: node.line, name }),
            _ => Err(mistake(node.line, &format!("{name} is {} and should be a map", node.kind()))),
        }
    }

    /// Only these: a name that is spelt wrong would else be a rule that says nothing.
    fn allow(&self, names: &[&str]) -> Result<(), Mistake> {
        match self.fields.iter().find(|field| !names.contains(&field.name.as_str())) {
            Some(Field { name, line, .. }) => {
                let known = names.join(", ");
                Err(mistake(*line, &format!("{} has no {name}: there are {known}", self.name)))
            }
            None => Ok(()),
        }
    }

    fn get(&self, name: &str) -> Option<&'a Node> {
        self.fields.iter().find(|field| field.name == name).map(|field| &field.node)
    }

    fn need(&self, name: &str) -> Result<&'a Node, Mistake> {
        self.get(name).ok_or_else(|| mistake(self.line, &format!("{name} is missing in {}", self.name)))
    }

    fn one_of<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T, Mistake> {
        let node = self.need(name)?;
        let given = text(node, name)?;
        choices.iter().find(|(choice, _)| *choice == given).map(|(_, meaning)| *meaning).ok_or_else(|| {
            let known: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
            mistake(node.line, &format!("{name} is {given}: there are {}", known.join(", ")))
        })
    }

    /// The texts of a list that may be missing, with their lines.
    fn texts(&self, name: &'a str) -> Result<Vec<(usize, &'a str)>, Mistake> {
        let nodes = self.get(name).map_or(Ok([].as_slice()), |node| list(node, name))?;
        nodes.iter().map(|node| Ok((node.line, text(node, name)?))).collect()
    }

    /// The same as templates, which must be fine with any name in its place.
    fn templates(
        &self,
        name: &'a str,
        is_fine: impl Fn(&str) -> bool,
        what: &str,
    ) -> Result<Vec<Template>, Mistake> {
        let anybody = Principal::default();
        let sample = |piece: Piece| match piece {
            Piece::Text(text) => Piece::Text(text),
            _ => Piece::Text("x".to_owned()),
        };
        let template = |(line, text)| {
            let template = Template::parse(line, text)?;
            let filled = Template(template.0.iter().cloned().map(sample).collect())
                .fill(Who { client_id: "x", principal: &anybody }, str::to_owned);
            match filled {
                Some(filled) if is_fine(&filled) => Ok(template),
                _ if text.is_empty() => Err(mistake(line, &format!("an empty text {what}"))),
                _ => Err(mistake(line, &format!("{text} {what}"))),
            }
        };
        self.texts(name)?.into_iter().map(template).collect()
    }
}

fn list<'a>(node: &'a Node, name: &str) -> Result<&'a [Node], Mistake> {
    match &node.value {
        Value::List(list) => Ok(list),
        _ => Err(mistake(node.line, &format!("{name} is {} and should be a list", node.kind()))),
    }
}

fn text<'a>(node: &'a Node, name: &str) -> Result<&'a str, Mistake> {
    match &node.value {
        Value::Text(text) => Ok(text),
        _ => Err(mistake(node.line, &format!("{name} has {} where a text should be", node.kind()))),
    }
}

fn mistake(line: usize, what: &str) -> Mistake {
    Mistake { line, what: what.to_owned() }
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
        let (attributes, alternatives) = (attributes.into(), alternatives.into());
        Principal { user: user.map(Into::into), attributes, alternatives }
    }

    #[test]
    fn a_rule_is_for_whoever_has_one_of_its_principals() {
        let policy = Policy::parse(RULES).unwrap();
        let may_connect = |id, principal: &Principal| policy.access(id, principal).may_connect;
        assert!(may_connect("press-7", &principal(None, &[])));
        assert!(may_connect("x", &principal(Some("ann"), &[])));
        assert!(may_connect("x", &principal(None, &[("OU", "Halle 3"), ("O", "Werk"), ("CN", "c")])));
        assert!(!may_connect("x", &principal(Some("bob"), &[("O", "Werk")])));
        assert!(!may_connect("press-77", &principal(None, &[])));
    }

    #[test]
    fn what_a_certificate_says_besides_its_subject_is_an_attribute_too() {
        let rules = RULES.replace("OU: Halle 3", "URI: \"spiffe://werk/press\"");
        let rules = rules.replace("attributes.OU", "attributes.O");
        let policy = Policy::parse(&rules).unwrap();
        let press = principal(None, &[("O", "Werk"), ("URI", "spiffe://werk/press")]);
        let access = policy.access("x", &press);
        assert!(access.may_connect && access.subscribe.covers("commands/Werk/#"));
        assert!(!policy.access("x", &principal(None, &[("O", "Werk"), ("URI", "spiffe://o")])).may_connect);
    }

    #[test]
    fn what_a_client_is_stands_in_its_place_and_a_rule_that_needs_more_says_nothing() {
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
    fn a_clients_name_never_widens_a_rule() {
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
    fn a_mistake_is_told_with_its_line() {
        for (from, to, what) in [
            ("method: Read\n", "method: Look\n", "method is Look: there are Read, Write, ReadWrite"),
            ("keyType: Binary", "keyType: Bin", "keyType is Bin: there are Pattern, String, Binary"),
            ("line[0-9]*", "line[0-9", "line[0-9 is no pattern: a [ that is not closed, or a ** that"),
            (
                "line[0-9]*",
                "[{principal.clientId}]",
                "[{principal.clientId}] has a {principal.…} within [ and ]",
            ),
            (
                "line[0-9]*",
                "a/{principal.username}[!{principal.clientId}b]",
                "a/{principal.username}[!{princ",
            ),
            ("/wA=", "/wA", "/wA is no base64: its end is missing, or the = at its end"),
            ("/wA=", "/w.A", "/w.A is no base64: character 3 does not belong there"),
            ("\"own/*/{principal.username}\"", "\"\"", "an empty text is no key"),
            ("usernames:", "userNames:", "principals has no userNames: there are clientIds, usernames, attr"),
            ("principals:", "principles:", "a rule has no principles: there are principals, "),
            ("telemetry/{principal.clientId}", "t/{principal.id}", "{principal.id} is not known: there"),
            ("telemetry/{principal.clientId}", "t#", "t# is no topic and no filter"),
            ("clientIds: [press-7, \"evil*\"]", "clientIds: press-7", "clientIds is a text and should be"),
            ("- method: Connect", "- {method: Connect, topics: [a]}", "topics are for Publish and "),
        ] {
            let rules = RULES.replace(from, to);
            let line = 1 + rules.lines().position(|line| line.contains(to.trim())).unwrap();
            let Mistake { line: found, what: said } = Policy::parse(&rules).unwrap_err();
            assert!(said.starts_with(what), "{said}");
            assert_eq!(found, line, "{said}");
        }
        for principals in ["{}", "{clientIds: []}", "{clientIds: [], usernames: [], attributes: []}"] {
            let rules = format!("rules:\n- brokerResources: []\n  principals: {principals}\n");
            let Mistake { line, what } = Policy::parse(&rules).unwrap_err();
            let said = "principals names nobody: there are clientIds, usernames, attributes";
            assert_eq!((line, what.as_str()), (3, said), "{principals}");
        }
        assert_eq!(Policy::parse("").unwrap_err().line, 0);
        assert_eq!(Policy::parse("- a").unwrap_err().what, "the file is a list and should be a map");
        assert_eq!(Policy::parse("kind: x").unwrap_err().what, "rules is missing in the file");
        assert_eq!(Policy::parse("rules: []").unwrap().len(), 0);
    }
}
