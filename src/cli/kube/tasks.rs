//! What goes on during a session: a forward that has ended is started again, a token is renewed before its end.

use std::time::Duration;

use tokio::time::sleep;

use super::error::in_short;
use super::kubectl::{Forward, Kubectl};
use super::token::new_token;
use crate::client::{ForwardingHandle, TokenRenewer};
use crate::clock;
use crate::commands::PreparationStep;

/// The pause before a forward is started again, and what it grows to while that fails.
const FORWARD_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// The pause after a token could not be renewed, and what it grows to.
const TOKEN_AGAIN: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];
/// After so much of its life a token is renewed.
const RENEWAL_PERCENT: u32 = 80;
/// When a token is renewed whose life is unknown; most are valid for an hour.
const RENEWAL: Duration = Duration::from_secs(30 * 60);

/// Keeps a port forwarded, until it is dropped.
pub async fn keep_forward(kubectl: Kubectl, mut forward: Forward, mut handle: ForwardingHandle) {
    let [pause_min, pause_max] = FORWARD_AGAIN;
    let mut pause = pause_min;
    loop {
        let since = clock::monotonic();
        let cause = tokio::select! {
            messages = forward.ended() => format!("kubectl port-forward has ended: {}", messages.last()),
            () = handle.silent() => "kubectl port-forward does not reach the broker".to_owned(),
        };
        // Ends kubectl, which may go on without a connection to the pod.
        drop(forward);
        handle.set(Err(cause));
        if clock::monotonic().saturating_duration_since(since) > pause_max {
            pause = pause_min;
        }
        forward = loop {
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(pause_max);
            match kubectl.forward().await {
                Ok((forward, local)) => {
                    handle.set(Ok(local));
                    break forward;
                }
                Err(failure) => handle.set(Err(in_short(PreparationStep::Forward, &failure, &kubectl))),
            }
        };
    }
}

/// Keeps a token valid, until it is dropped.
pub async fn keep_token(kubectl: Kubectl, renewer: TokenRenewer, lifetime: Option<Duration>) {
    let [pause_min, pause_max] = TOKEN_AGAIN;
    let (mut due, mut pause) = (renewal(lifetime), pause_min);
    loop {
        tokio::select! {
            () = sleep(due) => {}
            () = renewer.wanted() => {}
        }
        match new_token(&kubectl).await {
            Ok((token, lifetime)) => {
                renewer.renew(token, lifetime);
                (due, pause) = (renewal(lifetime), pause_min);
            }
            Err(failure) => {
                renewer.fail(in_short(PreparationStep::Token, &failure, &kubectl));
                due = pause;
                pause = pause.saturating_mul(2).min(pause_max);
            }
        }
    }
}

fn renewal(lifetime: Option<Duration>) -> Duration {
    const SHORTEST: Duration = Duration::from_secs(1);
    let part = |lifetime: Duration| lifetime.saturating_mul(RENEWAL_PERCENT).checked_div(100);
    lifetime.and_then(part).unwrap_or(RENEWAL).max(SHORTEST)
}
