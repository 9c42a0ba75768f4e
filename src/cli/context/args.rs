//! Arguments and help of `context`.

use clap::{Args, Subcommand};

use crate::commands::args::kind::ValueKind;

const EXAMPLES: &str = "\
Examples:
  mqkv context add lab -b mqtt://lab:1883
  mqkv context add prod -b mqtts://aio-broker:18883 -T ca.crt \\
    --sat-file token --read-only --prompt-color red
  mqkv context use lab                  use this context by default
  mqkv get k -x prod                    use another context once
  mqkv context set prod -b mqtts://aio-broker-2:18883
  mqkv context test prod

The contexts are in the configuration file; `mqkv config path` prints its name, `mqkv help config` describes its content.";

/// List, show, change and test named broker settings
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, arg_required_else_help = false)]
pub struct ContextArgs {
    #[command(subcommand)]
    pub verb: ContextVerb,
}

/// The verbs below `context`.
#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub enum ContextVerb {
    /// List the contexts
    Ls,
    /// Save the given connection options as a context
    ///
    /// Only the options on the command line are saved. Paths become absolute. The first context becomes the default.
    Add(AddArgs),
    /// Change the given connection options of a context
    Set(SetArgs),
    /// Rename a context
    Rename {
        /// Name of the context
        #[arg(value_name = "CONTEXT", add = ValueKind::Context)]
        name: String,
        /// New name
        #[arg(value_name = "NAME")]
        new: String,
    },
    /// Set the default context
    Use {
        /// Name of the context
        #[arg(value_name = "CONTEXT", add = ValueKind::Context, required_unless_present = "none", conflicts_with = "none")]
        name: Option<String>,
        /// Remove the default context
        #[arg(long)]
        none: bool,
    },
    /// Show a context, or the one in use
    Show {
        /// Name of the context
        #[arg(value_name = "CONTEXT", add = ValueKind::Context)]
        name: Option<String>,
    },
    /// Edit the configuration file in $VISUAL or $EDITOR
    ///
    /// The file is checked before it replaces the old one.
    Edit,
    /// Remove a context
    Rm {
        /// Name of the context
        #[arg(value_name = "CONTEXT", add = ValueKind::Context)]
        name: String,
    },
    /// Connect and ping with a context, or with the one in use
    Test {
        /// Name of the context
        #[arg(value_name = "CONTEXT", add = ValueKind::Context)]
        name: Option<String>,
    },
}

/// The context to change, and settings in addition to the connection options.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Name of the context
    #[arg(value_name = "CONTEXT", add = ValueKind::Context)]
    pub name: String,
    /// Whether to reject writes through this context
    ///
    /// --force-write allows one.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub read_only: Option<bool>,
    /// Color of the name at the prompt
    #[arg(long, value_name = "COLOR")]
    pub prompt_color: Option<String>,
}

/// Settings of a context in addition to the connection options.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Name of the context
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Reject writes through this context
    ///
    /// --force-write allows one.
    #[arg(long)]
    pub read_only: bool,
    /// Color of the name at the prompt
    #[arg(long, value_name = "COLOR")]
    pub prompt_color: Option<String>,
    /// Replace an existing context of this name
    #[arg(long)]
    pub force: bool,
}
