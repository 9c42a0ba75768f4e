//! How the SDK says who it is.

use std::fs;
use std::path::Path;
use std::time::Duration;

use azure_iot_operations_mqtt::error::SessionErrorKind;
use mqkv_interop::{Guest, Line, Mqkv, add_user, come_in_vain, settings, within};

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_user_and_password_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let right = write(folder.path(), "right", "open sesame");
    let wrong = write(folder.path(), "wrong", "open barley");
    add_user(&users, "ali", "open sesame");
    let server = Mqkv::start(&["--users", users.to_str().unwrap()]);
    let user = |password: &str| {
        settings(server.port(), "guest").username("ali".to_owned()).password_file(password.to_owned())
    };
    let guest = Guest::join_as("guest", user(&right));
    guest.set("k", "v").await;
    assert_eq!(come_in_vain(user(&wrong).client_id("thief")).await, SessionErrorKind::ReconnectHalted);
    let nobody = settings(server.port(), "nobody");
    assert_eq!(come_in_vain(nobody).await, SessionErrorKind::ReconnectHalted);
    assert_eq!(guest.get("k").await.unwrap(), b"v");
    guest.leave().await;
}

#[tokio::test]
async fn a_service_account_token_is_checked_and_renewed_within_one_connection() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = write(folder.path(), "tokens", "pod first-token\npod second-token\n");
    let mounted = folder.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let token = write(&mounted, "token", "first-token");
    let wrong = write(folder.path(), "wrong", "third-token");
    let server = Mqkv::start(&["--sat-tokens", &tokens]);
    let line = Line::to(server.port()).await;
    let guest = Guest::join_as("guest", settings(line.port(), "guest").sat_file(token.clone()));
    guest.set("k", "v").await;
    let thief = settings(server.port(), "thief").sat_file(wrong);
    assert_eq!(come_in_vain(thief).await, SessionErrorKind::ReconnectHalted);
    // The SDK looks at the file, and waits some seconds for it to settle.
    write(&mounted, "token", "second-token");
    within(async {
        while line.reauthenticated() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(guest.get("k").await.unwrap(), b"v");
    assert_eq!(line.sessions_present(), [false], "it is the same connection");
    guest.leave().await;
}
