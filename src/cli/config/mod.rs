//! Configuration: options, variables and the contexts of a file, and the layers that they form.

mod configuration;
pub mod document;
pub mod file;
pub mod layers;
pub mod location;
pub mod origin;
pub mod setting;
pub mod typed;
pub mod variables;
pub mod verb;

pub use configuration::{Configuration, whole_file};
