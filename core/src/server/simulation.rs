//! Runs of a simulation with many seeds, and counts of what has occurred.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The seeds between two lines of progress.
const PROGRESS: u64 = 500;

/// Runs a simulation with all seeds below a number.
///
/// # Panics
/// With the errors of all seeds that have failed.
pub(in crate::server) fn run_seeds(
    seeds: u64,
    threads: usize,
    run: impl Fn(u64) -> Result<(), String> + Sync,
) {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            if seed > 0 && seed.is_multiple_of(PROGRESS) {
                println!("{seed} of {seeds} seeds");
            }
            if let Err(error) = run(seed) {
                println!("seed {seed}, {error}");
                failed.lock().unwrap().push(format!("seed {seed}, {error}"));
            }
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Defines the counts of what has occurred, and how often it must in a hundred seeds.
macro_rules! figures {
    ($($name:ident: $expected:expr,)*) => {
        /// Counts of the events of a run, to prove that each kind has occurred.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Figures {
            $(pub $name: u64,)*
        }

        impl Figures {
            /// Runs a simulation with all seeds below a number, and checks that each kind has occurred often enough.
            pub fn check_seeds(seeds: u64, threads: usize, run: impl Fn(u64) -> (Self, Result<(), String>) + Sync) {
                let sum = std::sync::Mutex::new(Self::default());
                $crate::server::simulation::run_seeds(seeds, threads, |seed| {
                    let (figures, result) = run(seed);
                    sum.lock().unwrap().add(&figures);
                    result
                });
                let sum = sum.into_inner().unwrap();
                println!("{sum:?}");
                for (name, count, per_hundred_seeds) in sum.expected() {
                    assert!(count >= seeds * per_hundred_seeds / 100, "{name}: {count} in {seeds} seeds: {sum:?}");
                }
            }

            fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Returns each count, and the least one for a hundred seeds.
            fn expected(&self) -> Vec<(&'static str, u64, u64)> {
                vec![$((stringify!($name), self.$name, $expected),)*]
            }
        }
    };
}

pub(in crate::server) use figures;
