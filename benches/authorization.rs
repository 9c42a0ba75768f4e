//! The cost of a thousand authorization rules: requests per second of `mqkv serve` with and without `--authz`, in turn.
//!
//! `cargo bench --bench authorization` prints the rates and the ratio. All rules apply to the client of the benchmark:
//! each allows a pattern of keys and a topic, and the last one allows the requests.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::arithmetic_side_effects, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::disallowed_methods)]

mod shared;

use std::fmt::Write;
use std::fs;
use std::time::Instant;

use shared::raw::{self, RawClient, command};
use shared::{Process, ratios, serve, spread};

const RULES: usize = 1_000;
const REQUESTS: usize = 200_000;
const INFLIGHT: usize = 64;
const ROUNDS: usize = 7;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules");
    fs::write(&file, rules()).unwrap();
    let servers = [serve(&[]), serve(&["--authz", file.to_str().unwrap()])];
    let rates = shared::run(measure(&servers));
    println!("without rules     {} requests a second", spread(&rates[0], 0));
    println!("with {RULES} rules   {} requests a second", spread(&rates[1], 0));
    println!("ratio             {}", spread(&ratios(&rates[1], &rates[0]), 2));
}

fn rules() -> String {
    let mut rules = String::from("rules:\n");
    for number in 0..RULES {
        let is_last = number + 1 == RULES;
        let (request, answers) = match is_last {
            true => (raw::REQUEST_TOPIC.to_owned(), "clients/bench/#".to_owned()),
            false => (format!("plant/line{number}/#"), format!("answers/{number}/+")),
        };
        let keys = if is_last { "bench/*".to_owned() } else { format!("line{number}/*") };
        write!(
            rules,
            "- principals: {{clientIds: [bench]}}\n  brokerResources:\n  - method: Connect\n  \
             - {{method: Publish, topics: [\"{request}\", \"{answers}\"]}}\n  \
             - {{method: Subscribe, topics: [\"{answers}\"]}}\n  \
             stateStoreResources: [{{method: ReadWrite, keyType: Pattern, keys: [\"{keys}\"]}}]\n"
        )
        .unwrap();
    }
    rules
}

async fn measure(servers: &[Process; 2]) -> [Vec<f64>; 2] {
    let mut clients = Vec::new();
    for server in servers {
        clients.push(RawClient::for_requests(server.port, "bench").await);
    }
    let timestamp = raw::timestamp();
    let requests = [
        command(&[b"SET", b"bench/key-of-some-length", &[b'v'; 100]]),
        command(&[b"GET", b"bench/key-of-some-length"]),
    ]
    .map(|payload| raw::request("bench", &payload, &timestamp));
    let mut rates: [Vec<f64>; 2] = Default::default();
    for round in 0..=ROUNDS {
        for (at, client) in clients.iter_mut().enumerate() {
            let begun = Instant::now();
            client.request_all(&requests, INFLIGHT, REQUESTS).await.unwrap();
            // The first round warms up.
            if round > 0 {
                rates[at].push(REQUESTS as f64 / begun.elapsed().as_secs_f64());
            }
        }
    }
    rates
}
