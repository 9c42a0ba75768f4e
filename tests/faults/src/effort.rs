//! How much a run tries.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For each change: all scenarios within five minutes.
    Short,
    /// For a release: an hour or two.
    Long,
}

impl Effort {
    pub fn pick<T>(self, short: T, long: T) -> T {
        match self {
            Self::Short => short,
            Self::Long => long,
        }
    }
}
