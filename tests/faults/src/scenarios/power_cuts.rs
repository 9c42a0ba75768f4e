//! Power cuts on the simulated disk of the library's tests: they run more of them than `cargo test` does.

use std::path::Path;
use std::process::Command;

use crate::effort::Effort;

/// Number of power cuts, read by the tests.
const VARIABLE: &str = "MQKV_POWER_CUTS";

pub fn run(effort: Effort) -> Result<String, String> {
    let Some(cuts) = effort.pick(None, Some(20_000)) else {
        return Ok("`.ci/run` simulates 1,000 power cuts; more with --long".to_owned());
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["test", "--locked", "--release", "--lib", "power_cut_tests"]);
    command.args(["--", "--include-ignored", "--nocapture", "--test-threads=2"]);
    let output = command.env(VARIABLE, cuts.to_string()).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    }
    let figures = text.lines().find(|line| line.contains(&format!("cuts: {cuts}")));
    figures.map(str::to_owned).ok_or_else(|| format!("the tests printed no figures:\n{text}"))
}
