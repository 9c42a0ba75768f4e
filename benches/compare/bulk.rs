//! Many commands by one process: `mqkv batch`, `import`, `export`, `keys` and `serve --seed`, each beside `redis-cli` with the
//! same commands of the same bytes. The figure is that of the whole process, with its start.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::shared::raw::command;
use crate::shared::{MQKV, in_turn, print_against_others, rate, redis, serve};

const ROUNDS: usize = 5;
const KEYS: usize = 200_000;

pub fn run() {
    let folder = tempfile::tempdir().unwrap();
    let [lines, dump, sets, gets] = ["lines", "dump", "sets", "gets"].map(|name| folder.path().join(name));
    let [mut of_batch, mut of_import, mut of_sets, mut of_gets] = [(); 4].map(|()| String::new());
    for number in 0..KEYS {
        let (key, value) = (format!("bench/{number:06}"), format!("value-{number:06}-{}", "v".repeat(80)));
        writeln!(of_batch, "set {key} {value}").unwrap();
        writeln!(of_import, "{{\"key\":\"{key}\",\"value\":\"{value}\"}}").unwrap();
        of_sets.push_str(&String::from_utf8(command(&[b"SET", key.as_bytes(), value.as_bytes()])).unwrap());
        of_gets.push_str(&String::from_utf8(command(&[b"GET", key.as_bytes()])).unwrap());
    }
    for (path, text) in [(&lines, of_batch), (&dump, of_import), (&sets, of_sets), (&gets, of_gets)] {
        fs::write(path, text).unwrap();
    }
    let ours = serve(&["--keys-max", "1000000"]);
    let theirs = redis::serve(None);
    let mqkv = |words: &[&str]| {
        let mut command = Command::new(MQKV);
        command.args(words).args(["-q", "-b", &format!("mqtt://127.0.0.1:{}", ours.port)]);
        command
    };
    let redis_cli = |words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &theirs.port.to_string()]).args(words);
        command
    };
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (lines, dump) = (text(&lines), text(&dump));
    let pipe = |path: &Path| finish(redis_cli(&["--pipe"]).stdin(File::open(path).unwrap()));
    // The keys that the later sections read.
    finish(&mut mqkv(&["batch", &lines]));
    pipe(&sets);
    let all = "bench/*";
    let compare = |names: [&str; 2], one: &dyn Fn(), other: &dyn Fn()| {
        let figures = in_turn(ROUNDS, &mut [Box::new(|| rate(KEYS, one)), Box::new(|| rate(KEYS, other))]);
        print_against_others(&names, &figures, "a second", 0);
    };
    let set = || pipe(&sets);
    compare(["batch", "redis-cli --pipe, SET"], &|| finish(&mut mqkv(&["batch", &lines])), &set);
    compare(["import", "redis-cli --pipe, SET"], &|| finish(&mut mqkv(&["import", &dump])), &set);
    compare(
        ["serve --seed", "redis-cli --pipe, SET"],
        &|| drop(serve(&["--keys-max", "1000000", "--seed", &dump])),
        &set,
    );
    compare(["export", "redis-cli --pipe, GET"], &|| finish(&mut mqkv(&["export", all])), &|| pipe(&gets));
    let keys = || finish(&mut redis_cli(&["keys", all]));
    compare(["keys", "redis-cli keys"], &|| finish(&mut mqkv(&["keys", all])), &keys);
}

fn finish(command: &mut Command) {
    assert!(command.stdout(Stdio::null()).status().unwrap().success(), "{command:?}");
}
