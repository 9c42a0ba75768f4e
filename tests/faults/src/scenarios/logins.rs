//! Many wrong passwords in flight: logins from other addresses, and of other users, are accepted soon nevertheless.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Connection;
use crate::effort::Effort;
use crate::server::{Server, give_way, users};
use crate::wire::ConnectOptions;

/// Wrong passwords in flight.
const ATTACKERS: usize = 200;
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Behind the passwords of all attackers, a login takes several seconds.
const SLOW: Duration = Duration::from_secs(1);
/// A login waits for the check that is running, for one check of each other origin, and for its own.
const QUIET_FACTOR: u32 = 5;
const TIMEOUT: Duration = Duration::from_secs(60);
const SERVER_BUSY: u8 = 0x89;

/// The source of wrong passwords.
struct Attack {
    name: &'static str,
    from: Ipv4Addr,
    /// Whether the user names are those of the good logins.
    has_good_names: bool,
}

const ATTACKS: &[Attack] = &[
    Attack { name: "from another address", from: ELSEWHERE, has_good_names: false },
    Attack { name: "from another address, for the same users", from: ELSEWHERE, has_good_names: true },
    Attack { name: "from the same address, for another user", from: HERE, has_good_names: false },
];

/// The logins of both are in one line, which is not fair to the good ones.
const UNFAIR: Attack =
    Attack { name: "from the same address, for the same users", from: HERE, has_good_names: true };

/// The greatest times of a login.
struct Measured {
    quiet: Duration,
    attacked: Duration,
}

pub fn run(effort: Effort) -> Result<String, String> {
    let logins = effort.pick(10, 60);
    let unfair = measure(&UNFAIR, 2);
    if unfair.attacked < SLOW {
        return Err(format!("logins that wait for all others were not detected: {:?}", unfair.attacked));
    }
    let mut failures = 0;
    for attack in ATTACKS {
        let Measured { quiet, attacked } = measure(attack, logins);
        let is_slow = match effort {
            Effort::Short => attacked > SLOW,
            Effort::Long => attacked > (quiet * QUIET_FACTOR).min(SLOW),
        };
        failures += usize::from(is_slow);
        let found = if is_slow { "; TOO SLOW" } else { "" };
        println!(
            "  {ATTACKERS} wrong passwords {}: a login takes {} ms at most (quiet {}){found}",
            attack.name,
            attacked.as_millis(),
            quiet.as_millis(),
        );
    }
    match failures {
        0 => Ok(format!(
            "{} logins under {} attacks; an unfair queue was detected",
            logins * ATTACKS.len(),
            ATTACKS.len()
        )),
        _ => Err(format!("{failures} of {} attacks delayed logins", ATTACKS.len())),
    }
}

/// Measures `logins` logins, then as many during an attack. Each is of another user: a password that was correct before is
/// not checked again.
fn measure(attack: &Attack, logins: usize) -> Measured {
    let name = |kind: &str, number: usize| format!("{kind}{number}");
    let all = (0..logins).flat_map(|number| [name("quiet", number), name("good", number)]);
    let file = users(all.chain(["ann".to_owned()]));
    let server =
        Server::start_with_file("users", &file, &["--users", "users", "--login-failures-max", "1000000"]);
    let port = server.port();
    let greatest = |kind: &str| (0..logins).map(|number| login(port, &name(kind, number))).max().unwrap();
    let quiet = greatest("quiet");
    let (waiting, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|number| {
            let user = if attack.has_good_names { name("good", number % logins) } else { "ann".to_owned() };
            let (from, waiting, is_over) = (attack.from, Arc::clone(&waiting), Arc::clone(&is_over));
            thread::spawn(move || {
                give_way();
                while !is_over.load(Ordering::SeqCst) {
                    let Ok(mut connection) = send_connect(from, port, &user, b"wrong") else { continue };
                    waiting.fetch_add(1, Ordering::SeqCst);
                    let _ = connection.receive(Instant::now() + TIMEOUT);
                    waiting.fetch_sub(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    while waiting.load(Ordering::SeqCst) < ATTACKERS * 9 / 10 {
        thread::sleep(Duration::from_millis(10));
    }
    let attacked = greatest("good");
    is_over.store(true, Ordering::SeqCst);
    // Ends the connections that wait.
    drop(server);
    attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
    Measured { quiet, attacked }
}

/// Returns how long a login with the right password takes.
fn login(port: u16, user: &str) -> Duration {
    let begun = Instant::now();
    let mut connection = send_connect(HERE, port, user, b"right").unwrap();
    let connack = connection.receive(begun + TIMEOUT).unwrap();
    // A login that has waited for too long is refused as well as slow.
    assert!(matches!(connack.body[1], 0 | SERVER_BUSY), "{connack:?}");
    begun.elapsed()
}

fn send_connect(from: Ipv4Addr, port: u16, user: &str, password: &[u8]) -> io::Result<Connection> {
    let mut connection = Connection::open_from(from, port)?;
    let options = ConnectOptions { user: Some(user), password: Some(password), ..ConnectOptions::default() };
    connection.send(&options.encode())?;
    Ok(connection)
}
