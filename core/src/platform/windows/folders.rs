//! Folders of the user.

use crate::platform::types::UserFolder;

pub const HOME: &str = "USERPROFILE";

pub const SETTINGS: UserFolder = UserFolder { variable: "APPDATA", below_home: "AppData/Roaming" };

pub const STATE: UserFolder = UserFolder { variable: "LOCALAPPDATA", below_home: "AppData/Local" };
