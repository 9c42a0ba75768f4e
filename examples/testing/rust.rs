//! An application and its tests, with a store in the process of the tests.

use std::error::Error;
use std::time::Duration;

use mqkv::client::{Client, SetOptions, Settings, Target, WatchEvent};
use mqkv::protocol::Key;
use mqkv::testing::Store;

/// The application: keeps `line1/alarm` at "on" while `line1/temp` is above 80, and at "off" otherwise.
async fn application(port: u16) -> Result<(), Box<dyn Error + Send + Sync>> {
    let target = Target::Tcp { host: "127.0.0.1".to_owned(), port };
    let client = Client::connect(Settings::new(target, "application".to_owned())).await?;
    let mut temperature = client.watch([Key::new("line1/temp")?]).await?;
    loop {
        let value = match temperature.next().await? {
            WatchEvent::Current { found: Some(found), .. } => found.value,
            WatchEvent::Set { value: Some(value), .. } => value,
            _ => continue,
        };
        let is_hot = std::str::from_utf8(&value)?.parse::<f64>()? > 80.0;
        let alarm = if is_hot { "on" } else { "off" };
        client.set(&Key::new("line1/alarm")?, &alarm.into(), SetOptions::default()).await?;
    }
}

#[tokio::test]
async fn the_alarm_follows_the_temperature() {
    let store = Store::start().unwrap();
    store.set("line1/temp", "21.5").unwrap();
    tokio::spawn(application(store.port()));
    for (temperature, alarm) in [("21.5", "off"), ("95", "on"), ("80", "off")] {
        store.set("line1/temp", temperature).unwrap();
        // The application runs in this runtime: it needs the pauses of the test.
        while store.get("line1/alarm").unwrap().as_deref() != Some(alarm.as_bytes()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[test]
fn the_application_ends_when_its_broker_is_gone() {
    let store = Store::start().unwrap();
    store.set("line1/temp", "95").unwrap();
    let port = store.port();
    let application = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(application(port))
    });
    while store.get("line1/alarm").unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(store);
    assert!(application.join().unwrap().is_err());
}
