//! New tokens, by kubectl, and how long they are valid.

use std::time::Duration;

use super::kubectl::{Failure, Kubectl};
use crate::client::TokenClaims;
use crate::commands::PreparationStep;
use crate::net::Secret;

/// Creates a token, and returns how long it is valid from now on, if that can be read. The clock of the cluster may be another one, so
/// the token's time of issue counts as now.
pub async fn new_token(kubectl: &Kubectl) -> Result<(Secret, Option<Duration>), Failure> {
    let output = kubectl.output(PreparationStep::Token).await?;
    let token = output.first_line().map_err(|_| Failure::Unusable)?;
    let claims = TokenClaims::parse(token.bytes());
    let lifetime = claims.and_then(|claims| claims.expires_s?.checked_sub(claims.issued_s?));
    Ok((token, lifetime.map(Duration::from_secs)))
}
