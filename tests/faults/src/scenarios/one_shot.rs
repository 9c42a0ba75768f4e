//! Scripts that connect, set one key and disconnect, again and again: no write is refused, and memory stays bounded.

use crate::client::{Origin, set_once};
use crate::effort::Effort;
use crate::good_client::{self, MIB, Measured, Refusals, TIMEOUT, beside};
use crate::server::Server;

/// What the process may take beside the memory of the replies.
const MEMORY_BYTES_MAX: u64 = 64 * MIB;
const KEYS: usize = 100;

struct Course {
    name: &'static str,
    has_new_ids: bool,
    /// Options of the server.
    options: &'static [&'static str],
}

const COURSES: &[Course] = &[
    Course { name: "one client id", has_new_ids: false, options: &[] },
    Course { name: "a new client id for each", has_new_ids: true, options: &[] },
    Course { name: "one client id, on disk", has_new_ids: false, options: &["--data", "data"] },
    Course { name: "a new client id for each, on disk", has_new_ids: true, options: &["--data", "data"] },
];

pub fn run(effort: Effort) -> Result<String, String> {
    good_client::detects()?;
    detects()?;
    let writes = effort.pick(6_000, 60_000);
    // A short run fills a smaller memory: replies take a sixteenth.
    let (memory_max, replies_bytes_max) = effort.pick(("64M", 4 * MIB), ("1G", 64 * MIB));
    let mut failures = 0;
    let courses = effort.pick(&COURSES[..2], COURSES);
    for Course { name, has_new_ids, options } in courses {
        let server = Server::start(&[&["--memory-max", memory_max], *options].concat());
        let measured = measure(&server, writes, *has_new_ids);
        let name = format!("{writes} writes with {name}");
        failures += usize::from(!measured.report(&name, effort, MEMORY_BYTES_MAX + replies_bytes_max));
    }
    match failures {
        0 => Ok(format!(
            "{} x {writes} writes by clients that stay for one write; refusals were detected",
            courses.len()
        )),
        _ => Err(format!("{failures} of {} courses failed", courses.len())),
    }
}

fn measure(server: &Server, writes: usize, has_new_ids: bool) -> Measured {
    let script = |_: &_| {
        let mut refusals = Refusals::default();
        for number in 0..writes {
            let id = if has_new_ids { format!("cron-{number}") } else { "cron".to_owned() };
            let key = format!("cron/{}", number % KEYS);
            refusals.note(set_once(Origin::HERE, server.port(), &id, &key, &number.to_string(), TIMEOUT));
        }
        refusals
    };
    let (mut measured, refusals) = beside(server, Origin::HERE, script, |_| Refusals::default());
    measured.refusals.add(refusals);
    measured
}

/// Checks that refused writes are noticed: the store has no room for all keys.
fn detects() -> Result<(), String> {
    let server = Server::start(&["--keys-max", "50"]);
    let refused = |key: usize| {
        set_once(Origin::HERE, server.port(), "cron", &format!("cron/{key}"), "1", TIMEOUT).is_err()
    };
    match (0..KEYS).filter(|key| refused(*key)).count() {
        50 => Ok(()),
        other => Err(format!("of {KEYS} writes, 50 of which are refused, {other} were noticed")),
    }
}
