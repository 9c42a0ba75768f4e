//! Counts of what has occurred in a simulation.

/// Defines the counts of what has occurred, and how often it must in a hundred seeds.
macro_rules! figures {
    ($($name:ident: $expected:expr,)*) => {
        /// Counts of the events of a run, to prove that each kind has occurred.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Figures {
            $(pub $name: u64,)*
        }

        impl Figures {
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Returns each count, and the least one for a hundred seeds.
            pub fn expected(&self) -> Vec<(&'static str, u64, u64)> {
                vec![$((stringify!($name), self.$name, $expected),)*]
            }
        }
    };
}

pub(in crate::server) use figures;
