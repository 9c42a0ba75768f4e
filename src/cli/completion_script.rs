//! Completion scripts of the shells: a few lines each, which call the binary.

use clap::ValueEnum;

/// A shell that has a completion script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

impl Shell {
    /// Returns the name of the file that the shell expects, and the script.
    #[must_use]
    pub const fn script(self) -> (&'static str, &'static str) {
        match self {
            Self::Bash => ("mqkv.bash", include_str!("../../completions/mqkv.bash")),
            Self::Elvish => ("mqkv.elv", include_str!("../../completions/mqkv.elv")),
            Self::Fish => ("mqkv.fish", include_str!("../../completions/mqkv.fish")),
            Self::Powershell => ("_mqkv.ps1", include_str!("../../completions/_mqkv.ps1")),
            Self::Zsh => ("_mqkv", include_str!("../../completions/_mqkv")),
        }
    }
}
