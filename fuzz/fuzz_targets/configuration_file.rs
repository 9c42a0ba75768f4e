//! Fuzz target: any configuration file. A change of a valid file is valid, and changes nothing else.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use mqkv::cli::fuzzing::{Content, File, put_context, remove_context, set_default};

/// The name of a context that no seed has.
const NAME: &str = "added-by-the-target";

fuzz_target!(|data: &[u8]| {
    let read =
        |text: &[u8]| File::read(Path::new("/etc/mqkv/config.toml"), text, Some(Path::new("/home/ann")));
    let Ok(before) = read(data) else { return };
    let text = std::str::from_utf8(data).expect("a valid file is UTF-8");
    if before.context(NAME).is_ok() {
        return;
    }
    let settings = [("broker".to_owned(), Content::Text("mqtt://lab:1883".to_owned()))];
    let Ok(added) = put_context(text, NAME, &settings) else { return };
    let after = read(added.as_bytes()).expect("a file with one more context is valid");
    assert!(after.context(NAME).is_ok());
    assert_eq!((after.contexts.len(), &after.default), (before.contexts.len() + 1, &before.default));
    let with_default = set_default(&added, Some(NAME)).expect("the text is valid");
    assert_eq!(read(with_default.as_bytes()).expect("it is valid").default.as_deref(), Some(NAME));
    let removed = remove_context(&with_default, NAME).expect("the text is valid");
    let removed = read(removed.as_bytes()).expect("it is valid");
    assert!(removed.context(NAME).is_err());
    assert_eq!(removed.contexts.len(), before.contexts.len());
});
