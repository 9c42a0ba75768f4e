//! What a service account token states about itself, as text for errors and `doctor` (pure). Nothing of it is escaped.

use crate::client::{SentToken, TokenClaims};
use crate::render::cut::cut;
use crate::render::duration::{rfc3339, rough};

/// The audience of the broker of Azure IoT Operations. Other brokers may require another one.
const AUDIENCE: &str = "aio-internal";
/// The most audiences that are shown, and the most columns of each text of a token.
const AUDIENCES_SHOWN_MAX: usize = 3;
const COLUMNS_MAX: usize = 70;

/// Whether a token is valid at a time.
enum Validity {
    /// It has no end that is known.
    Unlimited,
    Until {
        expires_s: u64,
        left_s: u64,
    },
    Expired {
        expires_s: u64,
        since_s: u64,
    },
    NotYet {
        not_before_s: u64,
        until_s: u64,
    },
}

/// Returns the account, the audiences and the expiry of a token.
pub fn summary(token: &SentToken) -> String {
    let Some(claims) = &token.claims else { return "not a JSON Web Token (JWT)".to_owned() };
    let account = account(claims).unwrap_or_else(|| "no subject".to_owned());
    let audiences = audiences(claims).map_or_else(|| "no audience".to_owned(), |of| format!("for {of}"));
    let validity = match validity(claims, token.now_s) {
        Validity::Unlimited => "no expiry".to_owned(),
        Validity::Until { left_s, .. } => format!("expires in {}", time_text(left_s)),
        Validity::Expired { since_s, .. } => format!("expired {} ago", time_text(since_s)),
        Validity::NotYet { until_s, .. } => format!("valid in {} only", time_text(until_s)),
    };
    format!("{account}; {audiences}; {validity}")
}

/// Returns what is wrong with the validity of a token now or soon, with what to do about it.
pub fn warning(token: &SentToken) -> Option<(String, String)> {
    let claims = token.claims.as_ref()?;
    let (what, hint) = match validity(claims, token.now_s) {
        Validity::Expired { since_s, .. } => {
            (format!("the token expired {} ago", time_text(since_s)), GET_ANOTHER)
        }
        Validity::NotYet { until_s, .. } => {
            (format!("the token is valid in {} only", time_text(until_s)), CHECK_CLOCK)
        }
        Validity::Until { expires_s, left_s } if is_nearly_over(claims, expires_s, left_s) => {
            (format!("the token expires in {}", time_text(left_s)), GET_ANOTHER)
        }
        Validity::Until { .. } | Validity::Unlimited => return None,
    };
    Some((what, hint.to_owned()))
}

const GET_ANOTHER: &str = "get another token: kubectl create token ACCOUNT --audience aio-internal";
const CHECK_CLOCK: &str = "check the clock of this machine";

/// Returns the hints for a token that a broker has rejected.
pub fn hints(token: &SentToken) -> Vec<String> {
    let of = token.file.as_ref().map_or_else(String::new, |file| format!(" in {}", file.display()));
    let Some(claims) = &token.claims else {
        const NONE: &str = "no JSON Web Token (JWT), as Kubernetes issues them";
        return vec![match &token.file {
            Some(file) => format!("{} contains {NONE}: check the file of --sat-file", file.display()),
            None => format!("the token is {NONE}"),
        }];
    };
    let mut hints = Vec::new();
    match validity(claims, token.now_s) {
        Validity::Expired { expires_s, since_s } => {
            let (ago, at) = (time_text(since_s), date(expires_s));
            hints.push(format!("the token{of} expired {ago} ago{at}: get another one, or correct the clock"));
        }
        Validity::NotYet { not_before_s, until_s } => {
            let (after, at) = (time_text(until_s), date(not_before_s));
            hints.push(format!("the token{of} is valid in {after} only{at}: {CHECK_CLOCK}"));
        }
        Validity::Until { left_s, .. } => {
            let (account, left) = (account_or(claims), time_text(left_s));
            hints.push(format!(
                "check whether the broker accepts {account}: the token{of} is valid for {left} more"
            ));
        }
        Validity::Unlimited => {
            hints.push(format!("check whether the broker accepts {}{of}", account_or(claims)));
        }
    }
    if !claims.audiences.iter().any(|audience| audience == AUDIENCE) {
        let audiences = audiences(claims).unwrap_or_else(|| "no audience".to_owned());
        hints.push(format!(
            "the token{of} is for {audiences}; the broker of Azure IoT Operations requires {AUDIENCE}"
        ));
    }
    hints
}

fn validity(claims: &TokenClaims, now_s: u64) -> Validity {
    match (claims.not_before_s, claims.expires_s) {
        (_, Some(expires_s)) if expires_s <= now_s => {
            Validity::Expired { expires_s, since_s: now_s.saturating_sub(expires_s) }
        }
        (Some(not_before_s), _) if not_before_s > now_s => {
            Validity::NotYet { not_before_s, until_s: not_before_s.saturating_sub(now_s) }
        }
        (_, Some(expires_s)) => Validity::Until { expires_s, left_s: expires_s.saturating_sub(now_s) },
        (_, None) => Validity::Unlimited,
    }
}

/// Whether less than a tenth of the validity is left: Kubernetes replaces a mounted token when a fifth is left.
fn is_nearly_over(claims: &TokenClaims, expires_s: u64, left_s: u64) -> bool {
    claims.issued_s.is_some_and(|issued_s| left_s < expires_s.saturating_sub(issued_s) / 10)
}

fn account(claims: &TokenClaims) -> Option<String> {
    claims.account().as_deref().map(shown)
}

fn account_or(claims: &TokenClaims) -> String {
    account(claims).map_or_else(|| "the account".to_owned(), |account| format!("the account {account}"))
}

fn audiences(claims: &TokenClaims) -> Option<String> {
    let all = &claims.audiences;
    let mut texts: Vec<_> = all.iter().take(AUDIENCES_SHOWN_MAX).map(|audience| shown(audience)).collect();
    let more = all.len().saturating_sub(AUDIENCES_SHOWN_MAX);
    if more > 0 {
        texts.push(format!("{more} more"));
    }
    (!texts.is_empty()).then(|| format!("the audience {}", texts.join(", ")))
}

fn shown(text: &str) -> String {
    cut(&[(text.to_owned(), None)], COLUMNS_MAX, false)
}

fn time_text(seconds: u64) -> String {
    rough(seconds.saturating_mul(1000))
}

/// Returns a date in brackets, if it can be expressed.
fn date(seconds: u64) -> String {
    let date = seconds.checked_mul(1000).and_then(rfc3339);
    date.map_or_else(String::new, |date| format!(" ({})", date.replace(".000Z", "Z")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;
    const HOUR_S: u64 = 3600;

    fn token(change: impl FnOnce(&mut TokenClaims)) -> SentToken {
        let mut claims = TokenClaims {
            subject: Some("system:serviceaccount:plant:client".to_owned()),
            audiences: vec![AUDIENCE.to_owned()],
            issued_s: Some(NOW_S - HOUR_S),
            not_before_s: Some(NOW_S - HOUR_S),
            expires_s: Some(NOW_S + 23 * HOUR_S),
        };
        change(&mut claims);
        SentToken { file: Some("token".into()), claims: Some(claims), now_s: NOW_S }
    }

    #[test]
    fn a_token_that_was_rejected_has_a_hint_of_what_it_shows() {
        let expired = token(|claims| claims.expires_s = Some(NOW_S - 3 * HOUR_S));
        assert_eq!(
            hints(&expired),
            [
                "the token in token expired 3 h ago (2027-01-15T05:00:00Z): get another one, or correct the clock"
            ]
        );
        let early = token(|claims| claims.not_before_s = Some(NOW_S + 120));
        let expected = "the token in token is valid in 2 min only (2027-01-15T08:02:00Z): check the clock of this machine";
        assert_eq!(hints(&early), [expected]);
        let valid = "check whether the broker accepts the account plant/client: the token in token is valid for 23 h more";
        assert_eq!(hints(&token(|_| {})), [valid]);
        let other = token(|claims| claims.audiences = vec!["https://a.example".to_owned()]);
        let audience = "the token in token is for the audience https://a.example; the broker of Azure IoT Operations \
                        requires aio-internal";
        assert_eq!(hints(&other), [valid, audience]);
        let opaque = SentToken { claims: None, ..token(|_| {}) };
        assert!(
            matches!(&hints(&opaque)[..], [one] if one.starts_with("token contains no JSON Web Token (JWT)"))
        );
    }

    #[test]
    fn a_summary_is_short_whatever_the_token_has() {
        assert_eq!(summary(&token(|_| {})), "plant/client; for the audience aio-internal; expires in 23 h");
        let empty = SentToken { claims: Some(TokenClaims::default()), ..token(|_| {}) };
        assert_eq!(summary(&empty), "no subject; no audience; no expiry");
        let long = token(|claims| {
            claims.subject = Some("s".repeat(60_000));
            claims.audiences = vec!["a".repeat(1000); 60];
            claims.expires_s = Some(u64::MAX);
        });
        assert!(summary(&long).len() < 1000);
        assert!(hints(&long).concat().len() < 1500);
    }

    #[test]
    fn a_warning_is_given_when_a_tenth_of_the_validity_is_left() {
        let left =
            |left_s| warning(&token(|claims| claims.expires_s = Some(NOW_S + left_s))).map(|(what, _)| what);
        assert_eq!(left(HOUR_S), None);
        assert_eq!(left(300).as_deref(), Some("the token expires in 5 min"));
        assert_eq!(left(0).as_deref(), Some("the token expired 0 s ago"));
        let unknown = token(|claims| (claims.issued_s, claims.expires_s) = (None, Some(NOW_S + 1)));
        assert_eq!(warning(&unknown), None);
    }
}
