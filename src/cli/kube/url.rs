//! URLs of brokers in a Kubernetes cluster: parsing, and the form in which they are shown (pure).

use std::fmt;

use crate::commands::CommandError;

/// The scheme; a URL with defaults only is `kube:`.
pub const SCHEME: &str = "kube:";

const NAMESPACE: &str = "azure-iot-operations";
const SERVICE: &str = "aio-broker";
const PORT: u16 = 18883;
const ACCOUNT: &str = "default";
const FORM: &str = "-b kube://CONTEXT[/NAMESPACE[/SERVICE[:PORT]]][?serviceaccount=NAME]";

/// A service in a cluster, and the service account to authenticate with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeUrl {
    /// The context of kubectl; `None` for its current one.
    pub context: Option<String>,
    pub namespace: String,
    pub service: String,
    pub port: u16,
    pub account: String,
}

impl KubeUrl {
    /// Parses `kube:` or `kube://[CONTEXT][/NAMESPACE[/SERVICE[:PORT]]][?serviceaccount=NAME]`; `None` with another scheme.
    /// An absent or empty part is the default. In the parts `%2F` is a slash.
    ///
    /// # Errors
    /// A usage error, which contains no part that can be a secret.
    pub fn parse(url: &str) -> Result<Option<Self>, CommandError> {
        let wrong = |what: &str| CommandError::usage(format!("{what} in the URL kube://…")).hint(FORM);
        let Some((_, rest)) = url.split_at_checked(SCHEME.len()).filter(|(scheme, _)| is_scheme(scheme))
        else {
            return Ok(None);
        };
        let rest = match rest.strip_prefix("//") {
            Some(rest) => rest,
            None if rest.is_empty() => "",
            None => return Err(CommandError::usage("two slashes are missing after kube:").hint(FORM)),
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parts: Option<Vec<String>> = path.split('/').map(decoded).collect();
        let mut parts = parts.ok_or_else(|| wrong("% is not followed by two hexadecimal digits"))?;
        if parts.len() > 3 && parts.pop().is_some_and(|last| !last.is_empty()) || parts.len() > 3 {
            return Err(wrong("more than three parts").hint("write %2F for a slash in the name of a context"));
        }
        let mut parts = parts.into_iter().map(|part| Some(part).filter(|part| !part.is_empty()));
        let mut part = || parts.next().flatten();
        let (context, namespace, service) = (part(), part(), part());
        let (service, port) =
            match service.as_deref().map(|service| service.split_once(':').unwrap_or((service, ""))) {
                None => (SERVICE.to_owned(), PORT),
                Some((service, "")) if !path.ends_with(':') => (service.to_owned(), PORT),
                Some((service, port)) => {
                    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
                    let port = port.parse().ok().filter(|port| digits && *port != 0);
                    (service.to_owned(), port.ok_or_else(|| wrong("invalid port"))?)
                }
            };
        let account = match query.split_once('=') {
            None if query.is_empty() => ACCOUNT.to_owned(),
            Some(("serviceaccount", name)) => name.to_owned(),
            _ => return Err(wrong("another parameter than serviceaccount")),
        };
        let url = Self {
            context,
            namespace: namespace.unwrap_or_else(|| NAMESPACE.to_owned()),
            service,
            port,
            account,
        };
        if url.context.as_ref().is_some_and(|context| context.contains(char::is_control)) {
            return Err(wrong("invalid context"));
        }
        for (what, name) in
            [("namespace", &url.namespace), ("service", &url.service), ("service account", &url.account)]
        {
            if !is_name(name) {
                return Err(wrong(&format!("invalid {what}")));
            }
        }
        Ok(Some(url))
    }
}

fn is_scheme(text: &str) -> bool {
    text.eq_ignore_ascii_case(SCHEME)
}

/// Returns whether an object of Kubernetes can have this name (RFC 1123, 2.1). It is no option of a program.
fn is_name(name: &str) -> bool {
    const LEN_MAX: usize = 253;
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    name.len() <= LEN_MAX
        && name.chars().all(is_inner)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Replaces `%XX` by the byte XX (RFC 3986, 2.1).
fn decoded(part: &str) -> Option<String> {
    let mut pieces = part.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

fn encoded(part: &str) -> String {
    let mut out = String::new();
    for c in part.chars() {
        match c {
            '%' | '/' | '?' | '#' | ' ' => out.push_str(&format!("%{:02X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// The shortest URL that means the same.
impl fmt::Display for KubeUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, namespace, service, port, account } = self;
        let mut url = encoded(context.as_deref().unwrap_or_default());
        let service = match *port {
            PORT if service == SERVICE => String::new(),
            PORT => format!("/{service}"),
            port => format!("/{service}:{port}"),
        };
        if !service.is_empty() || namespace != NAMESPACE {
            url.push_str(&format!("/{namespace}{service}"));
        }
        if account != ACCOUNT {
            url.push_str(&format!("?serviceaccount={account}"));
        }
        out.write_str(SCHEME)?;
        if url.is_empty() { Ok(()) } else { write!(out, "//{url}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> KubeUrl {
        KubeUrl::parse(url).unwrap().unwrap()
    }

    fn of(context: Option<&str>, namespace: &str, service: &str, port: u16, account: &str) -> KubeUrl {
        KubeUrl {
            context: context.map(str::to_owned),
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            port,
            account: account.to_owned(),
        }
    }

    #[test]
    fn absent_and_empty_parts_are_the_defaults_of_the_product() {
        let product = |context| of(context, NAMESPACE, SERVICE, PORT, ACCOUNT);
        for url in [
            "kube:",
            "kube://",
            "KUBE:",
            "kube:///",
            "kube:////",
            "kube:///azure-iot-operations/aio-broker:18883",
        ] {
            assert_eq!(parsed(url), product(None), "{url}");
        }
        assert_eq!(parsed("kube://plant-7"), product(Some("plant-7")));
        assert_eq!(parsed("kube://p/ns/svc:1884?serviceaccount=me"), of(Some("p"), "ns", "svc", 1884, "me"));
        assert_eq!(parsed("kube:///ns/svc"), of(None, "ns", "svc", PORT, ACCOUNT));
        assert_eq!(parsed("kube://p//svc:1"), of(Some("p"), NAMESPACE, "svc", 1, ACCOUNT));
        assert_eq!(KubeUrl::parse("mqtt://kube:1").unwrap(), None);
        assert_eq!(KubeUrl::parse("kub").unwrap(), None);
    }

    #[test]
    fn a_context_can_have_any_name() {
        let eks = "arn:aws:eks:eu-central-1:1234:cluster/plant 7";
        assert_eq!(parsed("kube://arn:aws:eks:eu-central-1:1234:cluster%2Fplant%207").context.unwrap(), eks);
        assert_eq!(parsed("kube://admin@plant/ns").context.unwrap(), "admin@plant");
        assert_eq!(parsed("kube://Gr%C3%BCn").context.unwrap(), "Grün");
    }

    #[test]
    fn a_url_is_shown_in_its_shortest_form_which_means_the_same() {
        for url in [
            "kube:",
            "kube://plant-7",
            "kube:///ns",
            "kube://p/ns/svc",
            "kube://p/azure-iot-operations/aio-broker:1884",
            "kube://a%2Fb%25?serviceaccount=me",
        ] {
            assert_eq!(parsed(url).to_string(), url);
        }
        assert_eq!(
            parsed("kube://p/azure-iot-operations/aio-broker:18883?serviceaccount=default").to_string(),
            "kube://p"
        );
    }

    #[test]
    fn an_invalid_url_is_rejected_and_what_may_be_a_secret_is_not_printed() {
        for url in [
            "kube:plant",
            "kube:/plant",
            "kube://p/ns/svc:1/more",
            "kube://p/ns/svc:",
            "kube://p/ns/svc:0",
            "kube://p/ns/svc:65536",
            "kube://p/ns/svc:+1",
            "kube://p/-n/svc",
            "kube://p/ns/Svc",
            "kube://p/n s",
            "kube://%2",
            "kube://%zz",
            "kube://%FF",
            "kube://a%00b",
            "kube://p?serviceaccount=",
            "kube://p?serviceaccount=--as",
            "kube://p?token=secret",
            "kube://p?secret",
        ] {
            let error = KubeUrl::parse(url).unwrap_err();
            assert!(!format!("{error:?}").contains("secret\""), "{url}: {error:?}");
            assert!(!error.message.contains("secret"), "{url}: {error:?}");
        }
    }
}
