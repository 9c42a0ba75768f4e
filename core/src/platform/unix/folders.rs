//! Folders of the user.

use crate::platform::types::UserFolder;

/// Variable with the path of the home folder.
pub const HOME: &str = "HOME";

/// Where programs have their settings.
pub const SETTINGS: UserFolder = UserFolder {
    variable: "XDG_CONFIG_HOME",
    below_home: if cfg!(target_os = "macos") { "Library/Application Support" } else { ".config" },
};

/// Where programs keep what they have to remember, such as a history.
pub const STATE: UserFolder = UserFolder {
    variable: "XDG_STATE_HOME",
    below_home: if cfg!(target_os = "macos") { "Library/Application Support" } else { ".local/state" },
};
