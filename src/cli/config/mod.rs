//! Configuration: options, variables and the contexts of a file, and the layers that they form.

mod configuration;
pub mod document;
pub mod file;
mod layers;
pub mod location;
pub mod origin;
pub mod setting;
pub mod value;
pub mod variables;

pub use configuration::{Configuration, context_names, whole_file};
