//! Claims of a service account token. They are not verified: only the cluster that issued the token can do that.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

/// A token that the broker was sent, by what it states about itself. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentToken {
    /// None: in memory.
    pub file: Option<PathBuf>,
    /// None: the token is no JSON Web Token.
    pub claims: Option<TokenClaims>,
    /// When it was sent, in seconds since 1970.
    pub now_s: u64,
}

/// The claims of a JSON Web Token (RFC 7519, 4.1) that a broker checks. Times are in seconds since 1970. The texts are any that the
/// token has, not escaped, and together no longer than a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenClaims {
    pub subject: Option<String>,
    pub audiences: Vec<String>,
    pub issued_s: Option<u64>,
    pub not_before_s: Option<u64>,
    pub expires_s: Option<u64>,
}

impl TokenClaims {
    /// Reads the claims of a token. Returns None if it is no signed JSON Web Token.
    #[must_use]
    pub fn parse(token: &[u8]) -> Option<Self> {
        let token = std::str::from_utf8(token).ok()?.trim_ascii();
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        object(header)?;
        URL_SAFE_NO_PAD.decode(signature).ok()?;
        let claims = object(claims)?;
        let text = |name: &str| claims.get(name)?.as_str().map(str::to_owned);
        let time_s = |name: &str| claims.get(name)?.as_u64();
        let audiences = match claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        Some(Self {
            subject: text("sub"),
            audiences,
            issued_s: time_s("iat"),
            not_before_s: time_s("nbf"),
            expires_s: time_s("exp"),
        })
    }

    /// Returns the service account as `NAMESPACE/NAME`, or the subject if it is that of something else.
    #[must_use]
    pub fn account(&self) -> Option<String> {
        let subject = self.subject.as_deref()?;
        let account = subject.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':'));
        Some(account.map_or_else(|| subject.to_owned(), |(namespace, name)| format!("{namespace}/{name}")))
    }
}

/// Decodes a part of a token that is a JSON object. The parser bounds how deep it is nested.
fn object(part: &str) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(claims: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", part(r#"{"alg":"RS256"}"#), part(claims), part("signature"))
    }

    #[test]
    fn the_claims_of_a_service_account_are_read() {
        let claims = r#"{"aud":["aio-internal","b"],"exp":1800000000,"iat":1799996400,"nbf":1799996400,
            "iss":"https://kubernetes.default.svc","sub":"system:serviceaccount:azure-iot-operations:mqkv-client"}"#;
        let parsed = TokenClaims::parse(format!(" {}\n", token(claims)).as_bytes()).unwrap();
        assert_eq!(parsed.account().as_deref(), Some("azure-iot-operations/mqkv-client"));
        assert_eq!(parsed.audiences, ["aio-internal", "b"]);
        let times = (parsed.issued_s, parsed.not_before_s, parsed.expires_s);
        assert_eq!(times, (Some(1_799_996_400), Some(1_799_996_400), Some(1_800_000_000)));
        let other =
            TokenClaims::parse(token(r#"{"aud":"one","sub":"ann","exp":"soon"}"#).as_bytes()).unwrap();
        assert_eq!((other.account().as_deref(), other.expires_s), (Some("ann"), None));
        assert_eq!(other.audiences, ["one"]);
    }

    #[test]
    fn what_is_no_json_web_token_has_no_claims() {
        let valid = token("{}");
        let list = token("[1]");
        let deep = token(&"[".repeat(40_000));
        for text in
            ["", "opaque", "a.b.c", "..", &valid[1..], &format!("{valid}.e30"), &list, &deep, "\u{FEFF}.."]
        {
            assert_eq!(TokenClaims::parse(text.as_bytes()), None, "{}", &text[..text.len().min(40)]);
        }
        assert_eq!(TokenClaims::parse(valid.as_bytes()), Some(TokenClaims::default()));
        assert_eq!(TokenClaims::parse(b"\xFF.e30.e30"), None);
    }

    proptest! {
        #[test]
        fn no_token_makes_the_parser_panic(claims in ".{0,200}", cut in 0usize..300) {
            let text = token(&claims);
            let _ = TokenClaims::parse(text.as_bytes());
            let _ = TokenClaims::parse(&text.as_bytes()[..cut.min(text.len())]);
        }
    }
}
