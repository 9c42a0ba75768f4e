//! What the shell says about itself (pure).

use super::definition::Definition;
use crate::shell::backslash;

/// The help of `\?` and of a lone `help`.
#[must_use]
pub fn help(definition: &Definition) -> String {
    let mut out = String::from("Verbs, as on the command line, in any case (`help VERB` says more):\n");
    for verb in &definition.root.verbs {
        out.push_str(&format!("  {:<12} {}\n", verb.name, verb.about));
    }
    out.push_str("\nOf the prompt:\n");
    for (name, takes, about) in backslash::NAMES {
        out.push_str(&format!("  {:<22} {about}\n", format!("{name} {takes}")));
    }
    out.push_str(
        "
  get k | jq .           into a command, as /bin/sh reads it
  get k > file           into a file, whole or not at all
  watch k                in the background, its events above the line
  lock k                 held in the background until unlock k; its token is
                         what --fence-env attaches
  # ...                  a comment

Ctrl-C clears the line or stops what runs, and never leaves. Ctrl-D leaves.
Ctrl-R looks back, Tab completes, Right takes a grey hint over.
The history keeps no values of set and vdel, and no line that begins with a blank.
",
    );
    out
}

/// The first screen: where we are, how to get help, how to leave.
#[must_use]
pub fn greeting(place: &str) -> String {
    format!(
        "{place}\n\\? lists what there is, `help VERB` explains it, Tab completes\nCtrl-D or \\q leaves; Ctrl-C does not\n"
    )
}
