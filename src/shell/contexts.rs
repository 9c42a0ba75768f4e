//! Contexts of the configuration file, as far as the prompt shows them.

use std::sync::Arc;

use crate::render::style::CustomColor;

/// The context that a session uses.
#[derive(Clone, Debug)]
pub struct ActiveContext {
    pub name: String,
    pub shade: Option<CustomColor>,
    /// Whether writes are refused.
    pub is_read_only: bool,
}

/// Lists the names of the contexts. The editor's thread calls it.
pub type ListContexts = Arc<dyn Fn() -> Vec<String> + Send + Sync>;
